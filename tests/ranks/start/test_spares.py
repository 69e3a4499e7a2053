"""Spawned children: warm ahead of need, the same to whoever asks, and gone with their server."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from course_lib.grade.judge.inbox import Inbox
from course_lib.grade.judge.view import RankView
from course_lib.ranks import ForkServer
from course_lib.ranks.start import forkserver, spares
from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import Child, ServerDied
from course_lib.ranks.start.launch import start_method
from course_lib.ranks.start.spares import Spares
from course_lib.ranks.system.processes import LINUX
from course_lib.trace import Refusal

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PATIENCE = 240  # seconds: on a machine with other work, an import of torch takes tens of them


@pytest.fixture(autouse=True)
def spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this run of the tests asks for."""
    monkeypatch.setenv("COURSE_START", "spawn")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(HERE)]))


@pytest.fixture(scope="module")
def mine() -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_START", "spawn")
        patch.setenv("PYTHONPATH", str(HERE))
        with ForkServer() as server:
            assert server.wait_ready(PATIENCE)
            yield server


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


# --- which way -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("platform", "way"), [("linux", "fork"), ("darwin", "spawn"), ("freebsd14", "fork")]
)
def test_the_way_is_the_systems_unless_asked(
    monkeypatch: pytest.MonkeyPatch, platform: str, way: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert start_method() == "spawn", "as asked for"
    monkeypatch.setenv("COURSE_START", "")
    assert start_method() == way
    monkeypatch.delenv("COURSE_START")
    assert start_method() == way


def test_an_unknown_way_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_START", "thread")
    before = psutil.Process().children()
    with pytest.raises(Refusal) as caught:
        ForkServer()
    assert caught.value.asked == "COURSE_START=thread"
    assert caught.value.found == "processes start by fork or by spawn"
    assert psutil.Process().children() == before


# --- the stock -----------------------------------------------------------------------------------
def test_the_server_itself_has_no_torch(mine: ForkServer) -> None:
    assert psutil.Process(mine.pid).memory_info().rss < 100 << 20, "an interpreter, and no torch"


@pytest.mark.slow
def test_children_begin_alike(mine: ForkServer) -> None:
    """Or ranks that go through a set of names would meet in different calls.

    They have no thread yet, where the kernel ends them: one would be older than the grader's wall.
    """
    read, write = os.pipe()
    children = [mine.fork("children:begins", {}, (write,)) for _ in range(2)]
    assert [child.wait(PATIENCE) for child in children] == [0, 0]
    first, second = (line.split(b",") for line in os.read(read, 4096).split())
    assert first == second
    assert first[1] == b"1" or not LINUX
    os.close(read)
    os.close(write)


@pytest.mark.slow
def test_a_killed_spare_is_replaced_and_no_file_stays_open(
    mine: ForkServer, spares_of: Callable[[int], list[int]]
) -> None:
    def stock() -> list[int]:
        return spares_of(mine.pid)

    server = psutil.Process(mine.pid)
    assert eventually(lambda: len(stock()) == spares.FEWEST)
    before, victim = server.num_fds(), stock()[0]
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: victim not in stock() and len(stock()) == spares.FEWEST)
    read, write = os.pipe()
    assert mine.fork("children:ends", {"exit": 3}, (write, read)).wait(PATIENCE) == 3
    os.close(write)
    assert os.read(read, 1) == b"", "nobody else has it open"
    os.close(read)
    assert eventually(lambda: len(stock()) == spares.FEWEST and server.num_fds() <= before)


def test_the_stock_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for many at once, it keeps a few; none are started while jobs wait for theirs."""
    monkeypatch.setattr(spares, "AT_ONCE", 64)
    kept, read = Spares(), os.open(os.devnull, os.O_RDONLY)
    try:
        kept.refill()
        assert len(kept.stock) == spares.FEWEST
        jobs = [kept.give({"target": "children:sleeps"}, [os.dup(read)]) for _ in range(6)]
        assert kept.stock == [] and len(set(jobs)) == 6
        kept.refill()
        assert kept.stock == []
        for spare in kept.given.values():
            spare.begun = True
        kept.refill()
        assert len(kept.stock) == spares.MOST
    finally:
        os.close(read)
        for spare in kept.stock:
            spare.warm = True  # three that end before that are no accident
        for pid in {*kept.pids(), *kept.given}:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            kept.ended(pid)


def test_whoever_waits_long_is_told_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Spares()
    pid = kept.give({"target": "children:ends"}, [])
    try:
        os.kill(pid, signal.SIGSTOP)
        assert kept.complaint() == "", "not at once"
        monkeypatch.setattr(spares, "PATIENCE", 0.0)
        assert kept.complaint() == "Waiting for a new process to import torch."
        assert kept.complaint() == "", "not twice"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    kept.ended(pid)
    assert kept.complaint() == ""


def test_a_wait_for_the_server_is_told_as_well(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(forkserver, "PATIENCE", 0.0)
    said = "Waiting for the preloaded process to import torch.\n"
    for live, told in (("1", said), ("0", "")):
        monkeypatch.setenv("COURSE_LIVE", live)
        with ForkServer() as server:
            os.kill(server.fork("children:ends", {}).pid, 0)
        assert capfd.readouterr().err == told


def test_a_torch_that_cannot_be_imported_is_no_endless_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('this torch is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ForkServer() as server:
        with pytest.raises(ServerDied, match="exited with code 1"):
            server.wait_ready(PATIENCE)
        assert "this torch is broken" in capfd.readouterr().err


# --- the end -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_child_ends_with_its_server_where_the_kernel_does_not_see_to_it() -> None:
    """As on macOS: without PR_SET_PDEATHSIG, the closing of a channel must do."""
    mine, theirs = Channel.pair()
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", spares.START, str(theirs.fileno())], pass_fds=[theirs.fileno()],
        env={**os.environ, "COURSE_NO_PROC": "1"},
    )  # fmt: skip
    theirs.close()
    mine.send({"target": "children:sleeps", "args": {"subprocesses": 1}}, fds=(write,))
    os.close(write)
    assert select.select([read], [], [], PATIENCE)[0]
    assert os.read(read, 1) == b"!"
    mine.close()
    assert process.wait(20) == -signal.SIGKILL
    assert select.select([read], [], [], 20)[0]
    assert os.read(read, 1) == b"", "what it had started is gone too"
    os.close(read)


def test_only_the_first_ready_is_believed() -> None:
    """An answer that has found the channel could else forget what it has used."""
    judge, rank = Channel.pair()
    read, write = os.pipe()
    os.set_blocking(read, False)
    child = Child(os.getpid(), None)  # type: ignore[arg-type]  nobody ends it
    view = RankView(0, child, judge, Inbox(judge), read)
    rank.send({"say": "ready"})
    view.take()
    spent = view.spent
    assert view.ready and spent > 0.0
    while view.cpu() < spent + 0.1:
        pass
    rank.send({"say": "ready"})
    view.take()
    assert view.spent == spent
    view.inbox.close()
    for end in (judge, rank):
        end.close()
    os.close(read)
    os.close(write)


def test_processor_time_before_the_answer_is_not_counted_against_it() -> None:
    """A spawned rank has spent seconds on importing torch when the learner's code begins."""
    script = (
        "import resource, time\n"
        "from course_lib.grade.rank.confine import set_limits\n"
        "while time.process_time() < 2.5:\n    pass\n"
        "set_limits(1 << 32, 1.0, 0)\n"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time())\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 2.0 <= float(said.stdout) <= 4.1
    assert resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY
