"""The preloaded process: it forks, tells how children end, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import ForkServer, ServerDied
from course_lib.ranks.start.launch import start_method
from course_lib.ranks.system.processes import LINUX
from tests.ranks.open_files import open_files
from tests.tiers import sampled

HERE = str(Path(__file__).parent)
WAIT = 20 if start_method() == "fork" else 240  # seconds: a spawned child may import torch first

forks = pytest.mark.skipif(start_method() != "fork", reason="about the fork itself")
linux = pytest.mark.skipif(not LINUX, reason="only Linux finds every descendant")


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Servers that are started here can import `children`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE)
        yield


@pytest.fixture(scope="module")
def mine(importable: None) -> Iterator[ForkServer]:
    """A server for the tests that leave it alive."""
    with ForkServer() as started:
        assert started.wait_ready(240)
        yield started


class Family:
    """A pipe that a child and all its descendants hold open."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_inheritable(self.write, True)

    def fork(self, server: ForkServer, name: str, **args: Any) -> Any:
        child = server.fork(f"children:{name}", args, (self.write,))
        self.let_go()
        return child

    def let_go(self) -> None:
        os.close(self.write)

    def says(self, count: int) -> bytes:
        """The next bytes that the family writes."""
        data = b""
        while len(data) < count:
            assert select.select([self.read], [], [], WAIT)[0], f"only {data!r} came"
            piece = os.read(self.read, count - len(data))
            assert piece, "the family is gone"
            data += piece
        return data

    def is_gone(self, seconds: float = 8) -> bool:
        """Whether everybody has ended in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self.read], [], [], 0.1)
            if ready and not os.read(self.read, 4096):
                os.close(self.read)
                return True
        return False


@pytest.mark.parametrize(
    ("args", "status"),
    [
        ({}, 0),
        ({"exit": 7}, 7),
        ({"exit": "a message"}, 1),
        ({"raise": "an error"}, 1),
        ({"signal": signal.SIGTERM}, -signal.SIGTERM),
        ({"signal": signal.SIGKILL}, -signal.SIGKILL),
        ({"signal": signal.SIGINT}, -signal.SIGINT),
    ],
)
def test_how_a_child_ended(mine: ForkServer, args: dict[str, Any], status: int) -> None:
    assert mine.fork("children:ends", args).wait(WAIT) == status


def test_ends_of_many_children_are_told_apart(mine: ForkServer) -> None:
    children = [mine.fork("children:ends", {"exit": code}) for code in range(12)]
    assert [child.wait(WAIT) for child in children] == list(range(12))
    assert len({child.pid for child in children}) == 12


def test_a_running_child_has_no_status_until_it_is_killed(mine: ForkServer) -> None:
    family = Family()
    child = family.fork(mine, "sleeps", deaf=True)
    family.says(1)
    assert child.wait(0.05) is None
    child.kill(signal.SIGTERM)
    assert child.wait(0.3) is None, "it ignores SIGTERM"
    child.kill()
    assert child.wait(WAIT) == -signal.SIGKILL
    child.kill()  # of a child that has ended: nothing
    assert family.is_gone()


def test_output_environment_and_session_of_a_child(mine: ForkServer) -> None:
    read, write = os.pipe()
    env = {"GIVEN": "to it"}
    child = mine.fork("children:shows", {"text": "hello"}, (write,), stdout=0, env=env)
    os.close(write)
    assert child.wait(WAIT) == 0
    assert os.read(read, 4096).split(b"\n") == [
        b"hello to it True", b"from a program of its own", b"",
    ]  # fmt: skip
    os.close(read)
    assert "GIVEN" not in os.environ


@forks
def test_the_server_stays_safe_to_fork(mine: ForkServer) -> None:
    assert mine.fork("children:ends", {}).wait(WAIT) == 0
    process = psutil.Process(mine.pid)
    assert process.num_threads() == 1
    before = held_open(process)
    for _ in range(5):
        family = Family()
        child = family.fork(mine, "ends")
        assert child.wait(WAIT) == 0
        assert family.is_gone()
    deadline = time.monotonic() + 5
    while (now := held_open(process)) - before and time.monotonic() < deadline:
        time.sleep(0.02)  # it may be reading /proc just now
    assert now <= before, "it keeps open what it passed on"


def held_open(process: psutil.Process) -> Counter[str]:
    """What a process has open, each with how often; on Linux by name."""
    return open_files(process.pid) if LINUX else Counter({"files": process.num_fds()})


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_descendants_that_hide_in_sessions_of_their_own(mine: ForkServer, number: int) -> None:
    family = Family()
    child = family.fork(mine, "hides")
    family.says(3)
    child.kill(number)  # SIGTERM goes to the child alone, as if it had ended by itself
    assert child.wait(WAIT) == -number
    assert family.is_gone()


@linux
def test_a_process_that_runs_away_by_forking(mine: ForkServer) -> None:
    family = Family()
    child = family.fork(mine, "runs_away")
    family.says(1)
    assert child.wait(WAIT) == 0
    assert family.is_gone()
    assert mine.fork("children:ends", {"exit": 3}).wait(WAIT) == 3


@linux
def test_a_family_that_multiplies(mine: ForkServer) -> None:
    tokens, supply = os.pipe()
    os.write(supply, b"." * 60)
    family = Family()
    child = mine.fork("children:multiplies", {}, (family.write, tokens))
    family.let_go()
    family.says(1)
    time.sleep(0.1)  # let it grow
    child.kill()
    assert child.wait(WAIT) == -signal.SIGKILL
    assert family.is_gone()
    os.close(tokens)
    os.close(supply)


def test_a_child_that_may_fork_too(mine: ForkServer) -> None:
    family = Family()
    near, far = Channel.pair()
    fds = (family.write, near.fileno(), far.fileno())
    child = mine.fork("children:asks", {}, fds, serve=2)
    family.let_go()
    near.close()
    far.close()
    told = family.says(len(f"!9 None {mine.pid}\n")).replace(b"!", b"").decode().split()
    assert told == ["9", "None", str(mine.pid)]
    child.kill()
    assert child.wait(WAIT) == -signal.SIGKILL
    assert family.is_gone(), "what was forked for it must end with it"


@forks
def test_a_twin_ends_with_what_it_forked_and_the_first_goes_on(mine: ForkServer) -> None:
    family = Family()
    with mine.twin(WAIT) as twin:
        family.fork(twin, "sleeps", subprocesses=1)
        family.says(1)
    assert family.is_gone()
    with mine.twin(WAIT) as twin:
        assert twin.fork("children:ends", {"exit": 7}).wait(WAIT) == 7


@forks
def test_a_twin_that_is_killed_takes_its_children_along(mine: ForkServer) -> None:
    family = Family()
    with mine.twin(WAIT) as twin:
        child = family.fork(twin, "hides")
        family.says(3)
        parent = psutil.Process(child.pid).parent()
        assert parent is not None and parent.pid != mine.pid
        parent.kill()
        with pytest.raises(ServerDied):
            child.wait(WAIT)
        assert family.is_gone()
    assert mine.fork("children:ends", {"exit": 7}).wait(WAIT) == 7


@forks
@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, "SIGKILL"),
        pytest.param(signal.SIGSTOP, "not answered in 0.5 s", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_cannot_fork_its_twin_is_replaced(number: int, says: str) -> None:
    with ForkServer() as server:
        os.kill(server.pid, number)
        with pytest.raises(ServerDied, match=says):
            server.collect(WAIT if number == signal.SIGKILL else 0, until=lambda: False)
            server.twin(0.5)
        with server.twin(WAIT) as twin:
            assert twin.fork("children:ends", {"exit": 7}).wait(WAIT) == 7


def test_killed_server_takes_its_children_along() -> None:
    with ForkServer() as server:
        families = [Family() for _ in range(3)]
        children = [family.fork(server, "sleeps", subprocesses=1) for family in families]
        for family in families:
            family.says(1)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(ServerDied):
            children[0].wait(WAIT)
        assert [child.status for child in children] == [-signal.SIGKILL] * 3
        assert all(family.is_gone() for family in families)
        with pytest.raises(ServerDied):
            server.fork("children:ends", {})


@linux
@pytest.mark.parametrize("who", sampled(["server", "guard"], 2))
def test_what_hides_from_a_killed_server_ends_as_well(who: str) -> None:
    """A program in a session of its own, whose rank and server are killed, falls to the guard."""
    with ForkServer() as server:
        family = Family()
        child = family.fork(server, "hides")
        family.says(3)
        guard = psutil.Process(server.pid).ppid()
        os.kill(server.pid if who == "server" else guard, signal.SIGKILL)
        with pytest.raises(ServerDied, match="was killed by SIGKILL"):
            child.wait(WAIT)
        assert family.is_gone(), "before its owner hears of it, or soon after"


@pytest.mark.slow
@linux
def test_a_stopped_server_does_not_outlive_its_owner() -> None:
    family = Family()
    with ForkServer() as server:
        family.fork(server, "sleeps", subprocesses=1)
        family.says(1)
        os.kill(server.pid, signal.SIGSTOP)
    assert family.is_gone()


def test_server_ends_with_its_owner() -> None:
    family = Family()
    script = (
        "import os, sys, time\n"
        "from course_lib.ranks.start.forkserver import ForkServer\n"
        "server = ForkServer()\n"
        "server.fork('children:sleeps', {'subprocesses': 1}, (int(sys.argv[1]),))\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    root = str(Path(HERE).parents[2])
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(family.write)], pass_fds=[family.write],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join([root, HERE])},
    )  # fmt: skip
    family.let_go()
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    family.says(1)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert family.is_gone()
    psutil.wait_procs([server], timeout=5)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


def test_closing_the_server_ends_its_children() -> None:
    family = Family()
    with ForkServer() as server:
        family.fork(server, "sleeps", subprocesses=2)
        family.says(1)
    assert family.is_gone()


@forks
def test_an_interrupted_fork_leaves_no_child_and_no_mix_up() -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    with ForkServer() as server:
        assert not server.ready, "the server must still be importing when the interrupt comes"
        abandoned = Family()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                abandoned.fork(server, "sleeps")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        abandoned.let_go()
        kept = Family()
        child = kept.fork(server, "sleeps")
        kept.says(1)
        assert abandoned.is_gone()
        assert child.wait(0.05) is None, "the wrong child was killed"
        child.kill()
        assert child.wait(WAIT) == -signal.SIGKILL
        assert kept.is_gone()
