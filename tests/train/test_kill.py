"""A training that is killed: no rank stays, one job a folder, and what is resumed is whole."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from course_lib.checkpoint import complete_steps
from course_lib.train import RunConfig, read_log
from course_lib.train.command.folder import CHECKPOINTS, LOCK, LOG

ROOT = Path(__file__).resolve().parents[2]
TINY = RunConfig(
    layers=2, hidden=16, heads=2, kv_heads=2, ffn=24, sequence=16, batch=8, steps=4000, warmup=3,
    corpus_mib=1, save_every=2, resume=True,
)  # fmt: skip
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

pytestmark = pytest.mark.slow


def start(config: RunConfig, *more: str) -> subprocess.Popen[str]:
    agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={config.world}", "-m"]
    launcher = [] if "--launch" in more else agent
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, "course_lib.train.run", *shlex.split(config.options()),
         *more],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
             "GLOO_SOCKET_IFNAME": LOOPBACK},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def until_step(folder: Path, step: int, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 150
    log = folder / LOG
    while time.monotonic() < deadline and job.poll() is None:
        if log.exists() and any(row["step"] >= step for row in read_log(log)[-1:]):
            return
        time.sleep(0.05)
    raise AssertionError(f"no step {step}: {job.communicate()[1] if job.poll() else 'slow'}")


def kill_agent(job: subprocess.Popen[str]) -> list[psutil.Process]:
    """Kills torchrun alone; its ranks, of which the test says what becomes."""
    ranks = psutil.Process(job.pid).children(recursive=True)
    job.kill()
    job.communicate()
    return ranks


def end(ranks: list[psutil.Process]) -> None:
    for rank in ranks:
        with suppress(psutil.NoSuchProcess):
            rank.send_signal(signal.SIGKILL)


def test_ranks_end_with_their_agent_and_another_mesh_goes_on(tmp_path: Path) -> None:
    config = replace(TINY, folder=str(tmp_path))
    job = start(replace(config, dp=2, tp=2, zero=1))
    try:
        until_step(tmp_path, 5, job)
    finally:
        ranks = kill_agent(job)
    assert len(ranks) >= 4
    _, alive = psutil.wait_procs(ranks, timeout=20)
    end(alive)
    assert not alive, "orphans"
    saved = max(complete_steps(tmp_path / CHECKPOINTS))
    last = start(replace(config, dp=2, zero=3, steps=saved + 3), "--launch")
    said, errors = last.communicate(timeout=200)
    assert last.returncode == 0, errors
    assert f"resumed after step {saved}" in said
    steps = [row["step"] for row in read_log(tmp_path / LOG)]
    assert steps == list(range(1, saved + 4)), "each step once"


def test_one_job_a_folder_and_one_error(tmp_path: Path) -> None:
    config = replace(TINY, folder=str(tmp_path), dp=2)
    job = start(config)
    ranks = []
    try:
        until_step(tmp_path, 3, job)
        assert (tmp_path / LOCK).exists()
        second = start(config, "--launch")
        said, errors = second.communicate(timeout=200)
        assert second.returncode == 1
        assert errors.count("asked:") == errors.count("why:") == 1, errors
        assert "which trains there" in errors and "Traceback" not in said + errors
    finally:
        ranks = kill_agent(job)
        _, alive = psutil.wait_procs(ranks, timeout=20)
        end(alive)
    steps = [row["step"] for row in read_log(tmp_path / LOG)]
    assert steps == list(range(1, len(steps) + 1)), "the second has written nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of files for a process")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """A limit of the size of files stands for the disk; it is hit by the log or by a save."""
    first = start(replace(TINY, folder=str(tmp_path), steps=4), "--launch")
    assert first.communicate(timeout=200) and first.returncode == 0
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        "from course_lib.train.run import main; sys.exit(main(sys.argv[1:]))"
    )
    words = shlex.split(replace(TINY, folder=str(tmp_path), steps=20).options())
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "is full" in done.stderr and "step 4 is whole" in done.stderr
