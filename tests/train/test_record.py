"""A recorded training: equal to the bit when it is made again, and else named to the call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.grade.cli import main
from course_lib.replay import first_difference, read_recording
from course_lib.train import ConfigError, RunConfig, check, train
from course_lib.train.command.folder import recording_folder
from course_lib.train.loop import Run
from tests.tiers import sampled

TINY = RunConfig(
    layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=16, tied=True, batch=8, steps=4,
    warmup=3, corpus_mib=1, record=True, validate_every=2, save_every=2,
)  # fmt: skip


def on(group: Group, config: RunConfig, bad_rank: int = -1, bad_step: int = -1) -> list[float]:
    """Trains; in one step, one rank has a bit flipped in its first weight."""
    make = Run.step

    def step(run: Run) -> Any:
        if (group.rank, run.sampler.step + 1) == (bad_rank, bad_step):
            weight = run.model.parameters[0]
            weight.data.view(torch.int32).view(-1)[0] ^= 1 << 22
        return make(run)

    Run.step = step  # type: ignore[method-assign]
    try:
        return [row["loss"] for row in train(config, group, bar=False)]
    finally:
        Run.step = make  # type: ignore[method-assign]


MESHES = [
    {"dp": 4, "zero": 3},
    {"pp": 2, "tp": 2, "micro_batches": 2},
    {"dp": 4},
    {"dp": 2, "tp": 2, "zero": 1},
    {"dp": 2, "cp": 2, "zero": 2},
    {"dp": 2, "ep": 2, "experts": 2},
]


@pytest.mark.parametrize("mesh", sampled(MESHES, 6), ids=str)
def test_a_training_made_again_is_equal_and_a_flipped_bit_is_found(
    ranks: Any, tmp_path: Path, mesh: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b", "bad")]
    runs = [replace(TINY, folder=folder, **mesh) for folder in folders]
    losses = ranks(on, 4, runs[0])
    assert ranks(on, 4, runs[1]) == losses
    assert ranks(on, 4, replace(runs[0], folder="", record=False, save_every=0)) == losses
    ranks(on, 4, runs[2], 2, 3)
    right, again, bad = (read_recording(recording_folder(Path(f), 0)) for f in folders)
    assert not list(right.damage)
    assert [step.number for step in right.ranks[0].steps] == [1, 2, 3, 4]
    assert first_difference(right, again) is None
    found = first_difference(right, bad)
    assert found is not None
    assert (found.kind, found.step, found.ranks) == ("compute", 3, (2,)), found
    assert main(["runs", "--compare", *folders[:2]]) == 0
    assert capsys.readouterr().out.startswith("Equal to the bit in 4 steps and ")
    assert main(["runs", "--compare", folders[0], folders[2]]) == 1
    assert capsys.readouterr().out.startswith("Step 3, rank 2, call ")


def test_what_cannot_be_recorded_or_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="a recording"):
        check(RunConfig(record=True))
    assert main(["runs", "--compare", str(tmp_path)]) == 2
    assert "two runs" in capsys.readouterr().err
    assert main(["runs", "--compare", str(tmp_path), str(tmp_path)]) == 2
    assert "a run writes one with" in capsys.readouterr().err
