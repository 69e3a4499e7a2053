"""A rank is killed under real torchrun; the job starts again and ends as if nothing had been."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.checkpoint import complete_steps

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("elastic_script.py")
JOB = runpy.run_path(str(SCRIPT))
KILLED_IN, STEPS, LAST = 7, 10, 14


def torchrun(processes: int, *words: Any, restarts: int = 0) -> str:
    """Runs the script to its end, and returns what torchrun said."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={processes}", f"--max-restarts={restarts}",
        str(SCRIPT), *map(str, words),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or a restart finds the addresses of the dead
    env |= {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def losses_of(folder: Path, attempt: int) -> list[tuple[int, float]]:
    return [tuple(pair) for pair in json.loads((folder / f"attempt-{attempt}.json").read_text())]


@pytest.mark.slow
def test_a_killed_rank_costs_an_interval_at_most(ranks: Any, tmp_path: Path) -> None:
    """Two launches: one with a kill and a restart, then the same job on three processes."""
    folder = tmp_path / "job"
    folder.mkdir()
    said = torchrun(2, folder, STEPS, "--dropout", 0.3, "--dies", 1, KILLED_IN, restarts=1)
    assert "SIGKILL" in said or "-9" in said, "it was really killed"
    assert not (folder / "attempt-0.json").exists()

    expected = ranks(JOB["train"], 2, tmp_path / "uninterrupted", STEPS, 0.3)[0]
    found = losses_of(folder, 1)
    first = found[0][0]
    assert 0 < first <= KILLED_IN and KILLED_IN - first <= JOB["INTERVAL"], "work that was lost"
    assert found == expected[first:], "bit for bit"
    assert max(complete_steps(folder)) == max(complete_steps(tmp_path / "uninterrupted")) == 9

    # On: without dropout, three ranks do what two would have done, up to the order of sums.
    shutil.copytree(folder, tmp_path / "two")
    torchrun(3, folder, LAST)
    expected = ranks(JOB["train"], 2, tmp_path / "two", LAST, 0.0)[0]
    found = losses_of(folder, 0)
    assert [step for step, _ in found] == [step for step, _ in expected] == list(range(9, LAST))
    for (_, loss), (_, right) in zip(found, expected, strict=True):
        assert loss == pytest.approx(right, rel=1e-12)
