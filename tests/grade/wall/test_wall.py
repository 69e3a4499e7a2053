"""An answer that is hostile changes nothing outside, learns nothing, and leaves nothing behind.

Each case in `hostile/` is the body of a function that an answer's process calls. What it brings
back must hold neither the word LOOT nor a secret; what it may use is described at `Scene`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from course_lib.grade.judge.bench import Bench, Result
from course_lib.grade.judge.terms import Limits, Subject
from course_lib.ranks import ForkServer
from course_lib.ranks.system.wall import lacks
from tests.grade.wall import attack
from tests.grade.wall.hostile import (
    compiled,
    evidence,
    files,
    information,
    later,
    network,
    processes,
    resources,
)

COURSE = Path(__file__).parents[3]
SECRET = "not-for-your-eyes"
HERE = Path(__file__).parent
LATER = (
    *(COURSE / place for place in ("sitecustomize.py", "course_lib/grade/__pycache__/evil.pyc")),
    *(Path(place, "wall-evil") for place in ("/tmp", "/var/tmp", "/dev/shm")),
)
pytestmark = pytest.mark.skipif(bool(lacks()), reason=f"this kernel cannot refuse {lacks()}")


class Scene:
    """What an attack is aimed at, and whether it is as it was.

    Args:
        folder: for all of it.

    Attributes:
        given: what the answer is told: `bait` (a folder as a learner has one), `shm` (a file in
            the machine's shared memory), `victim` (a process id), `port` (where somebody listens
            for TCP and UDP), `abstract` (a name for Unix sockets), `course`, `suite`, `seed`, and
            `needle` and `secret`, the judge's and the folder's secrets without their middle `-`.
    """

    def __init__(self, folder: Path) -> None:
        self.bait = _bait(folder / "learner")
        self.shm = Path("/dev/shm", f"wall-{os.getpid()}")
        self.shm.write_bytes(b"as it was")
        self.victim = subprocess.Popen(["sleep", "600"])
        self.listeners = _listeners(self.bait, f"wall-{os.getpid()}")
        port = self.listeners[0].getsockname()[1]
        self.seed = 987_654_321
        self.given: dict[str, Any] = {
            "bait": str(self.bait), "shm": str(self.shm), "victim": self.victim.pid, "port": port,
            "abstract": f"wall-{os.getpid()}", "course": str(COURSE), "seed": self.seed - 1,
            "suite": str(HERE / "attack.py"),
            "needle": attack.EXPECTED.replace("-", "", 1).encode(),
            "secret": SECRET.replace("-", "", 1).encode(),
        }  # fmt: skip
        self.before = self.state()

    def state(self) -> tuple[Any, ...]:
        """Everything that an attack could change."""
        victim = psutil.Process(self.victim.pid)
        return (
            _digest(self.bait),
            self.shm.exists() and self.shm.read_bytes(),
            [path.exists() for path in LATER],
            victim.status() not in ("stopped", "tracing-stop", "zombie", "dead"),
            victim.nice(),
            victim.cpu_affinity(),
            victim.rlimit(psutil.RLIMIT_CPU),
            [_reached(each) for each in self.listeners],
        )

    def close(self) -> None:
        """Ends what was started."""
        self.victim.kill()
        self.victim.wait()
        for each in self.listeners:
            each.close()
        self.shm.unlink(missing_ok=True)
        for path in LATER:
            path.unlink(missing_ok=True)


def _bait(folder: Path) -> Path:
    for name in ("empty", "names", ".git/hooks", "site-packages"):
        (folder / name).mkdir(parents=True)
    (folder / "work.py").write_text("a learner's work\n")
    (folder / ".bashrc").write_text("# mine\n")
    (folder / "names" / SECRET).touch()
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.py").write_text(f"x = {SECRET!r}\n")
    return folder


def _digest(folder: Path) -> str:
    """Names, contents, modes, dates and owners of all files."""
    found = hashlib.sha256()
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        said = (str(path), info.st_mode, info.st_mtime_ns, info.st_uid, info.st_nlink)
        found.update(repr((said, os.listxattr(path, follow_symlinks=False))).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def _listeners(bait: Path, abstract: str) -> list[socket.socket]:
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(tcp.getsockname())
    udp6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with suppress(OSError):
        udp6.bind(("::1", tcp.getsockname()[1]))
    local, hidden = (socket.socket(socket.AF_UNIX) for _ in range(2))
    local.bind(f"{bait}/listener")
    hidden.bind(f"\0{abstract}")
    letters = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    letters.bind(f"{bait}/datagrams")
    for each in (local, hidden):
        each.listen()
    found = [tcp, udp, udp6, local, hidden, letters]
    for each in found:
        each.setblocking(False)
    return found


def _reached(listener: socket.socket) -> bool:
    with suppress(BlockingIOError):
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(99)
        else:
            listener.accept()[0].close()
        return True
    return False


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture
def attacked(
    scene: Scene, judged: ForkServer, tmp_path: Path, left_behind: Callable[[int], dict[int, str]]
) -> Iterator[Callable[..., Result]]:
    """Runs a body as an answer; afterwards everything must be as it was."""
    (tmp_path / "runs").mkdir()

    def call(body: str, **more: Any) -> Result:
        subject = Subject(
            "attack", ("attack",), str(tmp_path / "attack.py"), answer(body),
            str(HERE / "attack.py"), str(COURSE), hidden=(str(scene.bait),),
            protected=(str(scene.bait),),
        )  # fmt: skip
        bench = Bench(judged, subject, scene.seed, str(tmp_path / "runs"))
        limits = Limits(cpu=2.0, wall=4.0)
        return bench.result("drive", [{**scene.given, **more}], limits, None)

    yield call
    assert scene.state() == scene.before
    assert left_behind(judged.pid) == {}
    assert list((tmp_path / "runs").iterdir()) == []
    assert call("return 6 * 7").outputs == [42]


def answer(body: str) -> str:
    """A file whose function does this, and takes what a scene gives."""
    first, _, rest = body.partition("\n")
    lines = textwrap.indent("\n".join([first, textwrap.dedent(rest)]), "    ")
    names = "bait, course, shm, victim, port, abstract, needle, secret, seed, suite, library=b''"
    return f"def attack({names}):\n{lines}\n"


def _said(result: Result) -> str:
    """All that comes back of a run."""
    fault = result.fault
    return " ".join(map(repr, (result.outputs, fault, result.printed)))


def cases(*modules: Any) -> Any:
    """The cases of some modules as parameters, of which every second is quick."""
    found = [case for module in modules for case in module.CASES.items()]
    return pytest.mark.parametrize(
        "body",
        [
            pytest.param(text, id=name, marks=[pytest.mark.slow] * (number % 2))
            for number, (name, text) in enumerate(found)
        ],
    )


@cases(files, processes, network, information, later)
def test_nothing_outside_is_reached(body: str, attacked: Callable[..., Result]) -> None:
    said = _said(attacked(body))
    source = answer(body)
    for word in ("LOOT", SECRET):
        assert word not in _without_lines(said, source), said


def _without_lines(said: str, source: str) -> str:
    """What was said without lines of the answer itself, which a card may quote."""
    for line in sorted(source.splitlines(), key=len, reverse=True):
        if line.strip():
            said = said.replace(line.strip(), "").replace(repr(line.strip())[1:-1], "")
    return said


@cases(evidence)
def test_what_is_not_so_is_not_believed(body: str, attacked: Callable[..., Result]) -> None:
    result = attacked(body)
    assert result.fault is not None or "LOOT" not in repr(result.outputs)


@pytest.mark.slow
@cases(resources)
def test_there_is_a_verdict(body: str, attacked: Callable[..., Result]) -> None:
    result = attacked(body)
    assert "LOOT" not in repr(result.outputs)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Attacks that make their system calls themselves, compiled."""
    compiler = shutil.which("cc")
    if compiler is None or platform.machine() != "x86_64" or sys.platform != "linux":
        pytest.skip("a compiler for x86-64 on Linux")
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "attack.c").write_text(compiled.SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "attack.so", "attack.c"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "attack.so").read_bytes()


@cases(compiled)
def test_a_compiled_extension_reaches_nothing(
    body: str, attacked: Callable[..., Result], library: bytes
) -> None:
    head = "import ctypes\nopen('a.so', 'wb').write(library)\nc = ctypes.CDLL('./a.so')\n"
    said = _said(attacked(head + textwrap.dedent(body).strip(), library=library))
    assert "LOOT" not in _without_lines(said, answer(head + body)), said


def test_ranks_share_the_folder_of_a_check_alone(judged: ForkServer, tmp_path: Path) -> None:
    source = """
def attack():
    import os, tempfile, time
    for place in ('.', tempfile.gettempdir()):
        open(os.path.join(place, str(os.getpid())), 'w').close()
    time.sleep(0.5)
    return [len(os.listdir(place)) for place in ('.', tempfile.gettempdir())]
"""
    path, suite = str(tmp_path / "attack.py"), str(HERE / "attack.py")
    subject = Subject("attack", ("attack",), path, source, suite, str(COURSE))
    bench = Bench(judged, subject, 0, str(tmp_path))
    assert bench.result("drive", [{}, {}], Limits(), None).outputs == [[1, 1], [1, 1]]
    (tmp_path / "shared").mkdir()
    together = bench.result("drive", [{}, {}], Limits(), str(tmp_path / "shared"))
    assert [found[0] for found in together.outputs] == [2, 2]


def test_the_harness_sees_a_change(scene: Scene) -> None:
    os.kill(scene.victim.pid, signal.SIGSTOP)
    os.waitpid(scene.victim.pid, os.WUNTRACED)
    (scene.bait / "work.py").write_text("gone")
    changed = scene.state()
    os.kill(scene.victim.pid, signal.SIGCONT)
    assert [a == b for a, b in zip(changed, scene.before, strict=True)].count(False) == 2
