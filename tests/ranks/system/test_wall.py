"""The wall around a process, piece by piece; what hostile answers try is in tests/grade/wall."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.ranks.system import wall
from course_lib.ranks.system.wall import (
    READ,
    WRITE,
    calls,
    close_calls,
    close_files,
    lacks,
    seccomp,
)
from course_lib.ranks.system.wall.seccomp import Rule, Where

pytestmark = pytest.mark.skipif(bool(lacks()), reason="a kernel without Landlock or seccomp")
REFUSED, DONE, ANOTHER = 3, 0, 4


def closed_in(action: Callable[[], object], folder: Path, *, tcp: bool = False) -> int:
    """How an action ends in a process that may write in one folder."""
    child = os.fork()
    if child == 0:
        code = ANOTHER
        try:
            close_files([("/usr", READ), (str(folder), WRITE)], tcp=tcp)
            close_calls(tcp=tcp)
            action()
            code = DONE
        except PermissionError:
            code = REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def thread_runs() -> None:
    started = threading.Thread(target=int)
    started.start()
    started.join()


def test_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_text("x")
    inside, outside = tmp_path / "in", tmp_path / "out"
    assert closed_in(lambda: (inside / "a").write_text("x"), inside) == DONE
    assert closed_in(lambda: (inside / "a").rename(inside / "b"), inside) == DONE
    assert closed_in(lambda: (inside / "b").unlink(), inside) == DONE
    assert closed_in(lambda: os.listdir("/usr"), inside) == DONE
    assert closed_in(lambda: outside.read_text(), inside) == REFUSED
    assert closed_in(lambda: outside.write_text("y"), inside) == REFUSED
    assert closed_in(lambda: os.truncate(outside, 0), inside) == REFUSED
    assert closed_in(lambda: os.symlink(outside, inside / "link"), inside) == REFUSED
    assert closed_in(lambda: os.mkfifo(inside / "pipe"), inside) == REFUSED
    assert outside.read_text() == "x"


def test_a_file_can_be_touched_and_its_mode_is_not_changed(tmp_path: Path) -> None:
    assert closed_in(lambda: (tmp_path / "new").touch(), tmp_path) == DONE
    assert (tmp_path / "new").exists()
    mode = (tmp_path / "new").stat().st_mode
    assert closed_in(lambda: (tmp_path / "new").chmod(0), tmp_path) == DONE
    assert (tmp_path / "new").stat().st_mode == mode


def test_processes_and_signals(tmp_path: Path) -> None:
    assert closed_in(thread_runs, tmp_path) == DONE
    assert closed_in(lambda: os.kill(os.getpid(), 0), tmp_path) == DONE
    assert closed_in(os.fork, tmp_path) == REFUSED
    assert closed_in(lambda: os.kill(os.getppid(), 0), tmp_path) == REFUSED
    assert closed_in(lambda: os.posix_spawn("/usr/bin/true", ["true"], {}), tmp_path) == REFUSED
    assert closed_in(lambda: os.setuid(1), tmp_path) == REFUSED


def test_networks(tmp_path: Path) -> None:
    assert closed_in(socket.socket, tmp_path) == REFUSED
    assert closed_in(socket.socket, tmp_path, tcp=True) == DONE
    for tcp in (False, True):
        datagrams = socket.AF_INET, socket.SOCK_DGRAM
        assert closed_in(lambda both=datagrams: socket.socket(*both), tmp_path, tcp=tcp) == REFUSED
        assert closed_in(socket.socketpair, tmp_path, tcp=tcp) == DONE


def test_a_thread_that_was_there_before_is_filtered_as_well() -> None:
    child = os.fork()
    if child == 0:
        go = threading.Event()
        thread = threading.Thread(target=lambda: go.wait() and os.setpgid(0, 0))
        thread.start()
        threading.excepthook = lambda error: os._exit(
            REFUSED if error.exc_type is PermissionError else ANOTHER
        )
        close_calls(tcp=False)
        go.set()
        thread.join()
        os._exit(DONE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED


def run(rule: Rule, number: int, arguments: tuple[int, ...]) -> int:
    """What the filter's program answers to a call, as the kernel would compute it."""
    program = seccomp.program([rule])
    steps = [seccomp.struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    architecture, _ = calls.ARCHITECTURES[seccomp.platform.machine()]
    words = {0: number, 4: architecture} | {16 + 8 * n: word for n, word in enumerate(arguments)}
    register, at = 0, 0
    while True:
        code, if_so, if_not, value = steps[at]
        at += 1
        if code == seccomp.LOAD:
            register = words[value]
        elif code == seccomp.AND:
            register &= value
        elif code == seccomp.RETURN:
            return int(value)
        else:
            holds = register == value if code == seccomp.EQUAL else register >= value
            at += if_so if holds else if_not


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_test_looks_at_all_its_values(count: int) -> None:
    number = calls.NUMBERS["ioctl"]
    values = tuple(range(10, 10 + count))
    for value in range(8, 20):
        inside = value in values
        for rule, refused in (
            (Rule("ioctl", only=Where(1, values)), inside),
            (Rule("ioctl", but=Where(1, values)), not inside),
        ):
            answer = run(rule, number, (0, value))
            assert (answer != seccomp.ALLOW) == refused, (rule, value)
    assert run(Rule("ioctl"), number + 1, (0, 0)) == seccomp.ALLOW


def test_an_unknown_processor_is_not_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "NUMBERS", {})
    assert not seccomp.available()
    assert any("no seccomp" in word for word in lacks())


def test_an_old_kernel_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, words in ((0, "no Landlock"), (2, "an old Landlock")):
        monkeypatch.setattr(wall.landlock, "version", lambda known=version: known)
        assert any(words in word for word in lacks())
