"""Saves that are killed at random moments: the newest complete checkpoint loads, every time."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import Box, Piece, complete_steps, find_checkpoint, save_sharded
from course_lib.checkpoint.files.store import begin
from course_lib.checkpoint.files.write import commit, write_part
from course_lib.checkpoint.plan import claim, make_plan
from course_lib.ranks import Pool, run_on_ranks
from course_lib.ranks.pool.outcome import RanksError

COUNT = 3000  # elements of a rank
KILLS = 100  # that hit a save; the others hit the moments between two


def piece_of(index: int, step: int, size: int = 2) -> Piece:
    """A rank's part of a tensor that is full of the number of its step."""
    values = torch.full((COUNT,), float(step))
    return Piece("w", (COUNT * size,), Box((COUNT * index,), (COUNT,)), values)


def newest(root: Path) -> int:
    """The step of the newest checkpoint, whose values are checked; 0 if there is none yet."""
    if not complete_steps(root):
        return 0
    checkpoint = find_checkpoint(root)
    whole = Piece("w", (2 * COUNT,), Box.whole((2 * COUNT,)), torch.zeros(2 * COUNT))
    checkpoint.read([whole])
    step = checkpoint.manifest.step
    assert torch.equal(whole.tensor, torch.full((2 * COUNT,), float(step)))
    assert checkpoint.manifest.extra == {"position": step}
    return step


def save_by_two_processes(root: Path, step: int) -> None:
    """What the ranks do once they have agreed, in two processes that meet in the folder."""
    pieces = [piece_of(index, step) for index in range(2)]
    plan = make_plan([claim([piece]) for piece in pieces])
    folder = begin(root, step)
    other = os.fork()
    if not other:
        time.sleep(0.006 * (step % 3))  # ranks are not equally fast: it takes all of them
        write_part(folder, 1, [pieces[1]])
        os._exit(0)
    write_part(folder, 0, [pieces[0]])
    about = {"step": step, "extra": {"position": step}, "per_rank": [None, None]}
    commit(folder, 2, plan.tensors, about, 2, lambda _: bool(time.sleep(0.0002)))
    os.waitpid(other, 0)


def start_job(root: Path, step: int, told: int) -> int:
    """A process in a group of its own that saves step after step, and tells which are complete."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.write(told, b"ready...")
    while True:
        save_by_two_processes(root, step)
        os.write(told, step.to_bytes(8, "little"))
        step += 1


@pytest.mark.slow
def test_the_whole_job_killed_at_random_moments(tmp_path: Path) -> None:
    dice = random.Random(4)
    begun = time.monotonic()
    for step in (1, 2, 3):
        save_by_two_processes(tmp_path, step)
    usual = (time.monotonic() - begun) / 3
    inside = 0
    for _ in range(5 * KILLS):
        if inside == KILLS:
            break
        before = set(tmp_path.iterdir())
        hears, told = os.pipe()
        job = start_job(tmp_path, step + 1, told)
        os.close(told)
        assert os.read(hears, 8) == b"ready..."
        time.sleep(dice.uniform(0, 2 * usual))
        os.killpg(job, signal.SIGKILL)
        os.waitpid(job, 0)
        promised = step
        while (word := os.read(hears, 8)) != b"":  # its end: the other process is gone as well
            promised = int.from_bytes(word, "little")
        os.close(hears)
        inside += any(".tmp-" in path.name for path in set(tmp_path.iterdir()) - before)
        found = newest(tmp_path)
        assert found >= promised, "a save that had returned is not lost"
        step = found
    assert step > 3 and inside == KILLS, f"{step} steps saved, {inside} kills during a save"


def test_all_is_on_the_disk_before_the_name_appears(tmp_path: Path, monkeypatch: Any) -> None:
    """What a killed process cannot show, and a power cut would: the order of fsync and rename."""
    seen: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(handle: int) -> None:
        seen.append(
            f"fsync {Path(os.readlink(f'/proc/self/fd/{handle}')).name.partition('.tmp')[0]}"
        )
        fsync(handle)

    def watched_rename(path: Path, target: Path) -> Path:
        seen.append(f"rename to {target.name}")
        return rename(path, target)

    folder = begin(tmp_path, 7)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    write_part(folder, 0, [piece_of(0, 7, 1)])
    plan = make_plan([claim([piece_of(0, 7, 1)])])
    commit(
        folder, 1, plan.tensors, {"step": 7, "extra": None, "per_rank": []}, None, lambda _: True
    )
    assert seen == [
        "fsync rank-00000.bin",
        "rename to rank-00000.note",
        "fsync manifest.json",
        "fsync step-00000007",
        "rename to step-00000007",
        f"fsync {tmp_path.name}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["one rank", "all ranks"])
def test_ranks_killed_at_random_moments(server: Any, tmp_path: Path, whole: bool) -> None:
    """Real ranks, with their collectives: one is killed, or both."""
    dice = random.Random(5)

    def run(group: Any, root: str, step: int) -> None:
        while True:
            step += 1
            piece = piece_of(group.index, step)
            save_sharded([piece], root, group, step=step, extra={"position": step}, keep=2)

    step = 0
    for _ in range(12):
        with Pool(2, server) as pool:
            pool.start()
            victims = pool.pids if whole else [dice.choice(pool.pids)]
            names = set(tmp_path.iterdir())

            def kill(victims: list[int] = victims, names: set[Path] = names) -> None:
                while set(tmp_path.iterdir()) == names:
                    time.sleep(0.001)
                time.sleep(dice.uniform(0, 0.05))
                for victim in victims:
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)

            killer = threading.Thread(target=kill)
            killer.start()
            with pytest.raises(RanksError):
                pool.run(run, str(tmp_path), step, timeout=60)
            killer.join()
        found = newest(tmp_path)
        assert found >= step
        step = found
    assert step > 0


@pytest.mark.parametrize("dies", [1, 2, 3])
def test_the_others_are_told_that_a_rank_died_in_a_save(
    server: Any, tmp_path: Path, dies: int
) -> None:
    """Not that time is up: the thread that waits for the dead rank's part looks like idle.

    Index 0 hears of its neighbours' death (1 and 3) from gloo, of the other's it does not.
    """

    def save(group: Any) -> None:
        if group.index == dies:
            os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
        save_sharded([piece_of(group.index, 1, size=4)], tmp_path, group, step=1)

    with pytest.raises(RanksError, match=f"rank {dies} was killed by SIGKILL"):
        run_on_ranks(save, 4, server=server, timeout=60)
    assert not complete_steps(tmp_path)
