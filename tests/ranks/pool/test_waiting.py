"""The live line about a long wait, from reports alone and from ranks that really wait."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.ranks import ForkServer, Pool
from course_lib.ranks.pool import waiting
from course_lib.ranks.pool.waiting import Waits
from tests.tiers import sampled

Report = dict[str, Any]


def at(seconds: float, worked: float = 0.0, line: int = 4, **more: Any) -> Report:
    return {
        "state": "running", "at": seconds, "line": line, "file": "Cell", "source": "queue.get()",
        "talking": False, "threads": {"main": [0, worked]}, **more,
    }  # fmt: skip


def talks(seconds: float, **more: Any) -> Report:
    return at(seconds, talking=True, call="barrier", line=5, source="dist.barrier()", **more)


def line_after(*looks: list[Report]) -> str:
    waits = Waits()
    for look in looks:
        waits.look(dict(enumerate(look)))
    return waits.line(looks[-1][0]["at"] + 0.1)


def test_who_waits_for_a_rank_that_sleeps() -> None:
    looks = [[talks(t), at(t), talks(t)] for t in (0.0, 0.5, 12.0)]
    assert line_after(*looks) == (
        "Ranks 0 and 2 wait for rank 1, which has slept in line 4 for 12 s (queue.get())."
    )


def test_who_waits_for_a_rank_that_computes() -> None:
    looks = [[talks(t), at(t, worked=t, line=int(t))] for t in (0.0, 3.0, 9.0)]
    assert line_after(*looks).startswith(
        "Rank 0 waits for rank 1, which has been at work for 9 s, now in line 9"
    )


def test_all_sleep() -> None:
    looks = [[at(t), at(t)] for t in (0.0, 0.5, 7.0)]
    assert line_after(*looks) == "Ranks 0 and 1 have slept in line 4 for 7 s (queue.get())."


def test_a_rank_that_cannot_answer() -> None:
    looks = [[talks(t), at(0.0)] for t in (0.0, 0.5, 8.0)]
    assert "rank 1, which has not answered for 8 s, last seen in line 4" in line_after(*looks)


def test_a_rank_that_ended_is_said_first() -> None:
    gone = {"state": "killed", "error": "was killed by SIGKILL"}
    lost = {"state": "raised", "error": "RuntimeError: Connection closed by peer"}
    looks = [[talks(t), at(t), gone, lost] for t in (0.0, 0.5, 12.0)]
    assert line_after(*looks).startswith("Rank 2 was killed by SIGKILL; rank 0 waits for rank 1, ")


@pytest.mark.parametrize(
    "looks",
    [
        [[at(t, worked=t)] for t in (0.0, 3.0, 60.0)],  # computing is no waiting
        [[at(t)] for t in (0.0, 1.0, 4.0)],  # nor is a short nap
        [[at(t, line=int(t))] for t in (0.0, 4.0, 8.0, 12.0)],  # nor many of them
        [[{"state": "finished", "at": 0.0}]],
    ],
)
def test_what_is_worth_no_word(looks: list[list[Report]]) -> None:
    assert line_after(*looks) == ""


READY = """import ctypes, queue, socket, threading, time
lock, box = threading.Lock(), queue.Queue()
lock.acquire()
end, other = socket.socketpair()
"""
PORTABLE = """from course_lib.ranks.rank_process import where
from course_lib.ranks.system.portable import Portable
where.PROCESSES = Portable()
"""
WAITING = [
    "time.sleep(9)", "lock.acquire(timeout=9)", "box.get(timeout=9)", "end.recv(1)",
    "ctypes.CDLL(None).usleep(900_000_000)",
]  # fmt: skip


@pytest.mark.parametrize("twin", ["", PORTABLE])
@pytest.mark.parametrize("call", sampled(WAITING, 2))
def test_ranks_that_wait_in_anything(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, call: str, twin: str
) -> None:
    monkeypatch.setattr(waiting, "LONG", 0.6)
    said: list[str] = []
    with Pool(2, server) as pool:
        assert pool.run_cell(READY + twin).verdict == ""
        outcome = pool.run_cell(
            f"if rank == 1:\n    {call}\ndist.barrier()", timeout=2.5,
            watch=lambda so_far: said.append(so_far.waits),
        )  # fmt: skip
    assert outcome.verdict == "timeout"
    wanted = "Rank 0 waits for rank 1, which has slept in line 2 for"
    assert any(line.startswith(wanted) for line in said), said
