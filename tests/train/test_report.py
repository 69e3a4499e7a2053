"""What a run says of its steps: the loss of other text, what a step cost, and when it must end."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.model import cross_entropy, flops_per_token
from course_lib.train import RunConfig, loop, read_log, train
from course_lib.train.command.finite import NotFinite
from course_lib.train.command.folder import LOG
from course_lib.train.command.progress import Progress

TINY = RunConfig(
    layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=16, weights="fp64", batch=8,
    steps=4, warmup=3, rate=0.01, corpus_mib=1, seed=3, validate_every=2, validate_batches=2,
)  # fmt: skip


def on(group: Group, config: RunConfig) -> list[dict[str, Any]]:
    return train(config, group)


def validated(rows: list[dict[str, Any]]) -> list[float]:
    assert ["validation" in row for row in rows] == [False, True, False, True]
    return [row["validation"] for row in rows if "validation" in row]


def by_hand(group: Group, config: RunConfig) -> float:
    """The loss of the other text before any step, of the whole model at once."""
    run = loop.Run(config, group)
    stage = run.model.pipeline.stages[0]
    with torch.no_grad():
        losses = [cross_entropy(stage(x), y) for x, y in map(run.other.batch, range(2))]
    assert run.validate() == pytest.approx(float(sum(losses)) / 2, rel=1e-9)
    return float(sum(losses)) / 2


MESHES = [
    {"pp": 2, "tp": 2, "micro_batches": 2}, {"dp": 2, "zero": 3}, {"dp": 2, "zero": 2},
    {"cp": 2, "dp": 2, "zero": 1}, {"pp": 2, "schedule": "zb-v", "layers": 4, "micro_batches": 2},
    {"ep": 2, "dp": 2, "experts": 4}, {"tp": 2, "sequence_parallel": True, "recompute": "full"},
]  # fmt: skip


def test_validation_is_that_of_the_whole_model(ranks: Any) -> None:
    assert ranks(by_hand, 1, TINY)[0] > 5


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_validation_is_the_same_on_every_mesh(ranks: Any, mesh: dict[str, Any]) -> None:
    config = replace(TINY, **mesh)
    alone = replace(config, pp=1, dp=1, ep=1, cp=1, tp=1, zero=0, sequence_parallel=False,
                    schedule="1f1b")  # fmt: skip
    expected = validated(ranks(on, 1, alone)[0])
    assert expected[1] < expected[0]
    for rows in ranks(on, config.world, config):
        assert validated(rows) == pytest.approx(expected, rel=1e-6)


def test_what_a_step_cost(ranks: Any, tmp_path: Path) -> None:
    config = replace(TINY, dp=2, zero=1, peak_tflops=0.01, folder=str(tmp_path), experts=4)
    first, second = ranks(on, 2, config)
    for row, other in zip(first, second, strict=True):
        assert {k: row[k] for k in row if k != "seconds"} == {
            k: other[k] for k in row if k != "seconds"
        }
        mfu = flops_per_token(config.model) * row["tokens_per_second"] / (0.01e12 * 2)
        assert row["mfu"] == pytest.approx(mfu, abs=1e-5)
        assert row["slowest"] in (0, 1) and row["waited"] >= 0
        assert 1 <= row["expert_load"] <= 4
        half = row["optimizer_state_mib"] / row["parameters_mib"]
        assert half == pytest.approx(1.0, rel=0.1), "two numbers for each, cut over two ranks"
        assert row["peak_mib"] > row["parameters_mib"]
    assert read_log(tmp_path / LOG) == json.loads(json.dumps(first))


def spoiled(group: Group, config: RunConfig) -> tuple[str, int]:
    """Rank 1's part of the model, of the pipeline's last stage, is no number from step 3 on."""
    make = loop._make

    def step(run: Any, number: int) -> dict[str, float]:
        if number == 3 and group.rank == 1:
            with torch.no_grad():
                run.model.parameters[0].fill_(float("nan"))
        return make(run, number)

    loop._make = step
    with pytest.raises(NotFinite) as caught:
        train(config, group)
    return str(caught.value), len(read_log(Path(config.folder) / LOG))


def test_a_loss_that_is_no_number_ends_the_run(ranks: Any, tmp_path: Path) -> None:
    config = replace(TINY, pp=2, micro_batches=2, folder=str(tmp_path), save_every=2,
                     validate_every=0)  # fmt: skip
    said = ranks(spoiled, 2, config)
    assert said[0] == said[1]
    assert "step 3 of" in said[0][0] and "the loss of rank 1" in said[0][0]
    assert "that of step 2" in said[0][0] and said[0][1] == 3


def test_an_estimate_of_the_time_left_on_a_terminal_only() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    row = {"step": 1, "loss": 1.0, "seconds": 2.0, "tokens_per_second": 1234.0}
    for out, anew in ((terminal, True), (file, False)):
        Progress(1801, out, anew=anew).add(row)
    assert "1,234 tokens/s  1:00:00 left" in terminal.getvalue() and "left" not in file.getvalue()
