"""The training command: the same losses on every mesh, and after a kill on another one."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import CheckpointError, complete_steps
from course_lib.comm import Group
from course_lib.model import Transformer
from course_lib.model.transformer import seen_in_documents
from course_lib.train import ConfigError, RunConfig, loop, read_log, train, whole_model
from course_lib.train.command.folder import (
    CHECKPOINTS,
    CONFIG,
    LEDGERS,
    LOG,
    TRACE,
    changes,
    read_config,
)
from course_lib.train.loop import rate_at
from course_lib.train.run import parse
from course_lib.train.stage import TransformerStage
from tests.tiers import sampled

ROOT = Path(__file__).resolve().parents[2]
TINY = RunConfig(
    layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=16, tied=True, weights="fp64",
    batch=8, steps=12, warmup=3, rate=0.01, corpus_mib=1, seed=3,
)  # fmt: skip


def on(group: Group, config: RunConfig) -> list[dict[str, float]]:
    return train(config, group)


def losses(rows: list[dict[str, Any]]) -> list[float]:
    return [row["loss"] for row in rows]


def environment() -> dict[str, str]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": loopback}  # fmt: skip


def command(config: RunConfig) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={config.world}", "-m", "course_lib.train.run",
        *shlex.split(config.options()),
    ]  # fmt: skip


def test_learning_rate() -> None:
    config = replace(TINY, steps=100, warmup=10, rate=1.0)
    rates = [rate_at(config, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == pytest.approx(1.0) == max(rates)
    assert rates[99] == pytest.approx(0.1, abs=1e-3) and sorted(rates[10:])[::-1] == rates[10:]


@pytest.mark.slow
def test_killed_under_torchrun_and_resumed_on_another_mesh(ranks: Any, tmp_path: Path) -> None:
    """2 × 2 ranks are killed at some moment; two others go on, with FSDP."""
    long = replace(TINY, steps=4000, folder=str(tmp_path), save_every=2)
    job = subprocess.Popen(
        command(replace(long, pp=2, tp=2, micro_batches=2, zero=1)),
        env=environment(), start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log, checkpoints = tmp_path / LOG, tmp_path / CHECKPOINTS
    deadline = time.monotonic() + 100
    try:
        while time.monotonic() < deadline and not (log.exists() and len(read_log(log)) > 4):
            time.sleep(0.02)
    finally:
        kill_all(job)
    saved = max(complete_steps(checkpoints))
    assert 2 <= saved <= len(read_log(log)), "it had begun, and saved"
    alone = losses(ranks(upto, 1, replace(long, folder="", save_every=0), saved + 3)[0])
    rows = ranks(upto, 2, replace(long, dp=2, zero=3, resume=True), saved + 3)[0]
    assert [row["step"] for row in rows] == [saved + 1, saved + 2, saved + 3]
    logged = read_log(log)
    assert [row["step"] for row in logged] == list(range(1, saved + 4)), "each step once"
    assert losses(logged) == pytest.approx(alone, rel=1e-9)


def kill_all(job: subprocess.Popen[bytes]) -> None:
    """torchrun, and its ranks, which have process groups of their own."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
    ranks_of_it = children.read_text().split() if children.exists() else []
    for pid in (job.pid, *map(int, ranks_of_it)):
        os.kill(pid, signal.SIGKILL)
    job.wait()


def upto(group: Group, config: RunConfig, last: int) -> list[dict[str, float]]:
    """The rows up to a step; the run is given up there."""
    rows: list[dict[str, float]] = []
    make = loop._make

    def step_or_leave(run: Any, step: int) -> dict[str, float]:
        if step > last:
            raise KeyboardInterrupt
        rows.append(make(run, step))
        return rows[-1]

    loop._make = step_or_leave
    with pytest.raises(KeyboardInterrupt):
        train(config, group)
    return rows


def test_resumes_what_was_saved(ranks: Any, tmp_path: Path) -> None:
    """Six steps on one mesh, the rest on another; both are logged, and equal one process."""
    alone = losses(ranks(on, 1, TINY)[0])
    folder = str(tmp_path)
    # The cosine is as long as the run: what comes first stops early, as if it had been killed.
    first = replace(TINY, pp=2, tp=2, micro_batches=2, zero=1, folder=folder, save_every=3)
    ranks(upto, 4, first, 8)
    second = replace(TINY, dp=2, zero=3, folder=folder, save_every=3, resume=True)
    rows = ranks(on, 2, second)[0]
    assert [row["step"] for row in rows] == list(range(7, 13)), "from the checkpoint of step 6"
    logged = read_log(tmp_path / LOG)
    assert [row["step"] for row in logged] == list(range(1, 13)), "each step once"
    assert losses(logged) == pytest.approx(alone, rel=1e-9)
    assert alone[-1] < 0.95 * alone[0], "it learns, so another trajectory would show"
    assert read_config(tmp_path) == second
    model = whole_model(tmp_path / CHECKPOINTS, TINY.model)
    assert model.head.weight.dtype == torch.float64


@pytest.mark.slow
def test_the_recorded_run_is_one_of_this_command(ranks: Any) -> None:
    """The run that lesson 13 shows: its first losses come again, on 2 × 2 × 2."""
    recorded = json.loads((ROOT / "notebooks/data/train_2x2x2.json").read_text())
    assert sum(recorded["losses"][-50:]) / 50 < 1.25, "what the lesson says it has learned"
    config, _ = parse(shlex.split(recorded["command"])[5:])
    assert (config.degrees, config.steps) == ({"pp": 2, "dp": 2, "ep": 1, "cp": 1, "tp": 2}, 1500)
    rows = ranks(upto, 8, replace(config, folder=""), 6)[0]
    assert losses(rows) == pytest.approx(recorded["losses"][:6], rel=1e-4)


def test_says_what_is_not_as_it_was(tmp_path: Path) -> None:
    before = replace(TINY, folder=str(tmp_path), resume=True)
    assert changes(tmp_path, before) == "", "nothing is known of an earlier start"
    (tmp_path / CONFIG).write_text(json.dumps(asdict(before)))
    assert changes(tmp_path, before) == ""
    after = replace(before, data="other", model_file="m.json", resume=False)
    assert changes(tmp_path, after) == "--model  is now m.json, --data  is now other"
    (tmp_path / CONFIG).write_text("{")
    assert changes(tmp_path, after) == "", "a damaged file is no reason to stop"


def test_validates_on_each_window_once(ranks: Any, tmp_path: Path) -> None:
    """More batches than the other text has are all of it, and no more."""
    (tmp_path / "a.txt").write_text("two batches to validate on, and not a window more " * 70)
    config = replace(TINY, data=str(tmp_path), steps=1, batch=8, sequence=16, validate_every=1)
    few, many = (replace(config, validate_batches=count) for count in (2, 1000))
    losses = [ranks(on, 1, each)[0][0]["validation"] for each in (few, many)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "how",
    sampled([
        {"pp": 2, "tp": 2, "micro_batches": 2, "recompute": "full"},
        {"dp": 2, "zero": 3, "recompute": "selective"},
        {"tp": 2, "sequence_parallel": True},
        {"pp": 2, "micro_batches": 2, "schedule": "zb-h1"},
        {"ep": 2, "experts": 4},
    ], 2),
    ids=str,
)  # fmt: skip
def test_a_token_sees_its_own_document(ranks: Any, tmp_path: Path, how: dict[str, Any]) -> None:
    """Losses are those of one process, and not those of windows that are seen whole."""
    for number in range(300):
        (tmp_path / f"{number}.txt").write_text(f"no {number * 7919}")
    more = {name: value for name, value in how.items() if name == "experts"}
    one = replace(TINY, data=str(tmp_path), steps=3, mask_documents=True, validate_every=3, **more)
    right, whole = (ranks(on, 1, c)[0] for c in (one, replace(one, mask_documents=False)))
    config = replace(one, **how)
    rows = ranks(on, config.world, config)[0]
    assert losses(rows) == pytest.approx(losses(right), abs=1e-9)
    assert rows[-1]["validation"] == pytest.approx(right[-1]["validation"], abs=1e-9)
    assert abs(rows[0]["loss"] - whole[0]["loss"]) > 1e-6


def test_documents_in_one_window_are_as_if_alone() -> None:
    model = Transformer(replace(TINY, sequence=24).model).double()
    documents = torch.randint(0, 256, (9,)), torch.randint(0, 256, (15,))
    begins = torch.zeros(1, 24, dtype=torch.bool)
    begins[0, 8] = True
    stage = TransformerStage(model, range(2), first=True, last=True)
    packed = stage(torch.cat(documents)[None], seen_in_documents(begins))
    alone = torch.cat([model(document[None]) for document in documents], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)


def test_refuses_to_mix_runs(ranks: Any, tmp_path: Path) -> None:
    config = replace(TINY, dp=2, steps=2, folder=str(tmp_path), save_every=1)
    ranks(on, 2, config)

    def said(group: Group, other: RunConfig) -> str:
        with pytest.raises((CheckpointError, ConfigError)) as caught:
            train(other, group)
        return str(caught.value)

    again = ranks(said, 2, config)
    assert again[0] == again[1] and "checkpoints of another, up to step 2" in again[0]
    other = ranks(said, 2, replace(config, resume=True, batch=16))[0]
    assert "another seed or batch" in other and other.count("asked:") == 1
    kept = read_config(tmp_path)
    assert "64" in ranks(said, 2, replace(config, resume=True, hidden=64))[0]
    assert read_config(tmp_path) == kept, "a start that is refused changes nothing"
    assert "a world of 2 ranks" in ranks(said, 2, replace(config, dp=4))[0]


def test_traces_the_last_steps(ranks: Any, tmp_path: Path) -> None:
    config = replace(TINY, pp=2, dp=2, micro_batches=2, steps=4, folder=str(tmp_path))
    ranks(on, 4, replace(config, trace_steps=2))
    books = json.loads((tmp_path / LEDGERS).read_text())
    assert [book["rank"] for book in books] == [0, 1, 2, 3]
    for book in books:
        norms = [e for e in book["events"] if e["axis"] == "pp_dp_ep_cp_tp" and e["payload"] == 8]
        assert len(norms) == 2, "one a step"
    trace = json.loads((tmp_path / TRACE).read_text())["traceEvents"]
    assert {event["name"] for event in trace} >= {"0F0", "1B1", "send", "all_reduce"}


def test_a_long_run_forgets_what_is_not_traced(ranks: Any) -> None:
    def events(group: Group, steps: int) -> int:
        train(replace(TINY, dp=2, steps=steps), group)
        return len(group.ledger.events)

    assert ranks(events, 2, 2) == ranks(events, 2, 6)
