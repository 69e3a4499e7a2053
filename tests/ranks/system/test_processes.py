"""What is asked of the system about processes: both twins tell the same, and the choice holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from course_lib.ranks.start.channel import Channel
from course_lib.ranks.system import processes
from course_lib.ranks.system.carried import bytes_carried
from course_lib.ranks.system.portable import Portable
from course_lib.ranks.system.proc import Proc
from course_lib.ranks.system.processes import Processes

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20


def _twins() -> list[Processes]:
    """The portable one, and Linux's where it can be."""
    twins: list[Processes] = [Portable()]
    if sys.platform == "linux":
        from course_lib.ranks.system.proc import Proc

        twins.append(Proc())
    return twins


@pytest.fixture(params=_twins(), ids=lambda twin: type(twin).__name__)
def twin(request: pytest.FixtureRequest) -> Processes:
    found: Processes = request.param
    return found


@contextmanager
def child(source: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has printed a line; it is killed afterwards."""
    program = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    program.stdout.readline()
    yield program
    program.kill()
    program.wait()
    program.stdout.close()


def soon(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def test_processor_time(twin: Processes) -> None:
    with child("print(flush=True)\nwhile True: pass") as busy:
        before = twin.cpu(busy.pid)
        assert soon(lambda: twin.cpu(busy.pid) > before + 0.1)
    assert twin.cpu(busy.pid) == 0, "it is gone"


def test_memory(twin: Processes) -> None:
    source = (
        "import mmap; print(flush=True); input(); keep = b'x' * (32 << 20); "
        "shared = mmap.mmap(-1, 32 << 20); shared.write(keep); print(flush=True); input()"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None and program.stdout is not None
    program.stdout.readline()
    size, own = twin.memory(program.pid)
    program.stdin.write("\n")
    program.stdin.flush()
    program.stdout.readline()
    larger, more = twin.memory(program.pid)
    program.communicate("\n")
    assert 60 * MIB < larger - size < 80 * MIB and 60 * MIB < more - own < 80 * MIB
    assert twin.memory(program.pid) == (0, 0), "it is gone"


def test_children_and_how_they_are(twin: Processes) -> None:
    with child("import time; print(flush=True); time.sleep(600)") as one:
        assert one.pid in twin.children(os.getpid())
        assert not twin.is_stopped(one.pid) and not twin.is_dead(one.pid)
        one.send_signal(signal.SIGSTOP)
        assert soon(lambda: twin.is_stopped(one.pid))
        one.send_signal(signal.SIGKILL)
        assert soon(lambda: twin.is_dead(one.pid)), "a zombie is dead"
    assert twin.is_dead(one.pid) and not twin.is_stopped(one.pid)
    assert one.pid not in twin.children(os.getpid())
    assert twin.children(one.pid) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_just_then_has_no_children(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Its folder is found, and gone when it is opened. An error here would end all ranks."""

    def gone(path: Path, pattern: str) -> None:
        raise error(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", gone)
        assert Proc().children(os.getpid()) == []


def test_orphans_are_found_by_their_session() -> None:
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(600)\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert program.stdout is not None
    orphan = int(program.stdout.readline())
    assert soon(lambda: orphan in Portable().children(program.pid))
    program.kill()
    program.wait()
    assert orphan in Portable().children(program.pid), "also when the first of them has ended"
    os.kill(orphan, signal.SIGKILL)
    program.stdout.close()


def test_processes_of_a_user(twin: Processes) -> None:
    with child("import threading, time\n"
               "for _ in range(40): threading.Thread(target=time.sleep, args=(600,)).start()\n"
               "print(flush=True)"):  # fmt: skip
        assert twin.count(os.getuid()) > 41, "its threads, its first one, and this process"
    assert twin.count(2**31 - 7) == 0


def test_threads_of_this_process(twin: Processes) -> None:
    """Asked from a thread beside it: the program's own works now, and then it does not."""
    program = threading.get_ident()

    def look() -> list[float]:
        seen: list[list[float]] = []
        thread = threading.Thread(target=lambda: seen.append(twin.threads(program)[0]["main"]))
        thread.start()
        thread.join()
        return seen[0]

    before, end = look(), time.thread_time() + 0.2
    while time.thread_time() < end:
        pass
    assert look()[1] - before[1] >= 0.1


def test_bytes_on_a_connection_are_counted_and_other_files_are_not() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        mine, other = Channel.pair()
        before = bytes_carried()
        mine.send({"to": "a socket that is none of the network's"})
        assert bytes_carried() == before
        near.sendall(b"x" * 1000)
        far.recv(1000)
        assert soon(lambda: bytes_carried() == before + 2000)
        for end in (near, far, mine, other):
            end.close()


# --- the choice ----------------------------------------------------------------------------------
HOOK = """
import os, sys, traceback
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith("/proc"):
        frames = [frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe(1))]
        known = [name for name in frames if "course_lib" in name or "site-packages" in name]
        if known and "course_lib" in known[0]:
            with open(os.environ["FOUND"], "a") as file:
                file.write(f"{args[0]} by {known[0]}\\n")
sys.addaudithook(hook)
"""
PROGRAM = """
from course_lib.grade.cli import main
from course_lib.ranks import Pool, RanksError
def stuck(group):
    import torch, torch.distributed as dist
    if group.rank == 0:
        dist.all_reduce(torch.ones(3))
if __name__ == "__main__":
    with Pool(2, stall=0.5) as pool:
        try:
            pool.run(stuck)
        except RanksError as error:
            print(error)
    main(["grade", "ring_all_gather", "--file", "solutions/01_collectives/ring_all_gather.py"])
"""
READER = "import os; from course_lib.ranks.system.proc import Proc; print(Proc().cpu(os.getpid()))"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc to keep away from")
def test_without_proc_no_file_of_it_is_opened_by_any_process(tmp_path: Path) -> None:
    """A deadlock on ranks and a grading; the hook is inherited by all processes that they start."""
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    found = tmp_path / "found"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "FOUND": str(found), "COURSE_NO_PROC": "1"}

    def run(source: str) -> str:
        command = [sys.executable, "-c", source]
        done = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        return " ".join((done.stdout + done.stderr).split())

    said = run(PROGRAM)
    assert "Deadlock. Rank 0 waits in all_reduce" in said and "All checks passed." in said, said
    assert not found.exists(), found.read_text()
    run(READER)
    assert "system/proc.py" in found.read_text(), "the hook sees nothing"


def test_what_is_chosen_here() -> None:
    expected = sys.platform == "linux" and not os.environ.get("COURSE_NO_PROC")
    assert expected == processes.LINUX == (processes.LACKS == "")
    assert isinstance(processes.PROCESSES, Portable) != expected


def test_threads_are_counted(twin: Processes) -> None:
    source = (
        "import threading, time\n"
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(flush=True); time.sleep(60)"
    )
    with child(source) as program:
        assert twin.thread_count(program.pid) == 4
    assert twin.thread_count(program.pid) == 0


@pytest.mark.skipif(not processes.LINUX, reason="only Linux counts what a process writes")
def test_what_is_written_counts_without_a_name(tmp_path: Path) -> None:
    source = (
        f"import os, time; file = os.open({str(tmp_path / 'f')!r}, os.O_RDWR | os.O_CREAT)\n"
        f"os.unlink({str(tmp_path / 'f')!r}); os.write(file, bytes(5 << 20))\n"
        "print(flush=True); time.sleep(60)"
    )
    with child(source) as program:
        assert processes.PROCESSES.bytes_written(program.pid) >= 5 * MIB
