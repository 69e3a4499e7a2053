"""Random kills of ranks, kernels and graders: what is left says so, works again, and nothing stays.

`COURSE_KILLS` says how many (default 8), `COURSE_KILLS_SEED` which; with `COURSE_KILLS_TABLE` each
kill is added to that file as a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import Outcome, Pool, RanksError
from course_lib.ranks.hosts.hosts import why_not
from course_lib.ranks.start.forkserver import ServerDied
from course_lib.trace import Refusal

sys.path.insert(0, str(Path(__file__).parent))
scenes = importlib.import_module("scenes")
remains = importlib.import_module("remains")
Kind = scenes.Kind

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the census reads /proc"),
    pytest.mark.slow,
    pytest.mark.alone,  # it counts what is left on the machine
]

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("COURSE_KILLS", "8"))
SEED = int(os.environ.get("COURSE_KILLS_SEED", "0"))
EXERCISE = "03_accumulation/no_sync.py"
NAME, PASSED = "no_sync", "All checks passed."
ENDED = re.compile(r"All checks passed\.|hint 1 of|not to blame\.\n[^\n]+\n")  # of a card
DRAFT = re.compile(r"/\.[\w.]+\.\d+$")  # of a killed writer; the next one removes it

MEET = "t = torch.ones(1)\ndist.all_reduce(t)\nprint('sum', int(t))"
CALLS = "t = torch.ones(1000)\nfor _ in range(100):\n    dist.all_reduce(t)\n"
HIDDEN = "import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
FIGURES = (
    "%%ranks 4\nimport matplotlib.pyplot as plt\n"
    "for _ in range(2):\n    lines = plt.plot([1, 2])\n    plt.show()"
)
TRANSFER = "push(x=big)\nback = pull('x', rank=1)\ndel back"
CELL_OF_TORCHRUN = "%%torchrun 2\nimport time\ntime.sleep(1)\nprint('done')"
SAVES = """%%ranks 4
import torch
from course_lib.checkpoint import AsyncSaver, Box, Piece, complete_steps, find_checkpoint
saver, size = AsyncSaver("saves", group, keep=2), 100_000
step = max(complete_steps("saves"), default=0)
dist.barrier()
for step in range(step + 1, step + 4):
    part = Piece("w", (4 * size,), Box((size * rank,), (size,)), torch.full((size,), float(step)))
    saver.save([part], step=step)
path = saver.wait()
"""
SAVED = (
    SAVES
    + """whole = Piece("w", (4 * size,), Box.whole((4 * size,)), torch.zeros(4 * size))
find_checkpoint("saves").read([whole])
assert whole.tensor.eq(step).all()
print("saved")
"""
)
TRAINS = """%%ranks 4
from course_lib.checkpoint import complete_steps
from course_lib.train.command.config import RunConfig
from course_lib.train.loop import train
done = max(complete_steps("run/checkpoints"), default=0)
dist.barrier()
rows = train(RunConfig(dp=4, steps=done + 4, folder="run", save_every=1, resume=True, batch=4,
    layers=1, hidden=16, heads=2, kv_heads=2, ffn=16, sequence=16, corpus_mib=1), group, bar=False)
"""
TRAINED = TRAINS + "print('trained', len(rows))"
WRITES = """%%ranks 4
from course_lib.parallel.offload.nvme import NvmeStore
with NvmeStore(f"nvme/{rank}") as store:
    for number in range(6):
        store.start_write("x", torch.full((100_000,), float(number))).result()
"""
WRITTEN = """%%ranks 4
from pathlib import Path
with NvmeStore(f"nvme/{rank}") as store:
    x = store.start_read("x").result()
assert x.eq(x[0]).all()
print("whole", [path.name for path in Path(f"nvme/{rank}").iterdir()])
""".replace(
    "with NvmeStore", "from course_lib.parallel.offload.nvme import NvmeStore\nwith NvmeStore"
)
GRADE = f"%grade {NAME}"
HOSTS = "%%ranks 4 --hosts 2 --mbit 300 --fresh\n" + CALLS

SURVIVED = [
    Kind("rank, in collectives", "rank", "%%ranks 4\n" + CALLS, scenes.ANY),
    Kind("two ranks, in collectives", "two ranks", "%%ranks 4\n" + CALLS),
    Kind("rank with a hidden process", "rank", "%%ranks 4\n" + HIDDEN + CALLS),
    Kind("rank, in a transfer of 64 MiB", "rank", TRANSFER, scenes.ANY),
    Kind("rank, in a figure", "rank", FIGURES, (*scenes.HARD, signal.SIGSTOP)),
    Kind("rank, between cells", "rank", "%%ranks 4\nrank", scenes.ANY),
    Kind("rank, in a restart", "rank", "%%ranks 4 --fresh\n" + CALLS, scenes.ANY, strict=False),
    Kind("rank, in a save", "rank", SAVES, then=SAVED, right="ranks 0–3 │ saved"),
    Kind("rank, in training", "rank", TRAINS, then=TRAINED, right="trained 4"),
    Kind("rank, in writes to NVMe", "rank", WRITES, then=WRITTEN, right="whole ['x']"),
    Kind("rank, in a grading", "rank", GRADE, then=GRADE, right=PASSED, strict=False),
    Kind("preloaded process, in collectives", "server", "%%ranks 4\n" + CALLS, scenes.ENDS),
    Kind("preloaded process, of a hidden process", "server", "%%ranks 4\n" + HIDDEN + CALLS,
         scenes.ENDS),
    Kind("guard of the preloaded process", "server's guard", "%%ranks 4\n" + HIDDEN + CALLS,
         scenes.ENDS),
    Kind("preloaded process, in a restart", "server", "%%ranks 4 --fresh\n" + CALLS, scenes.ENDS,
         strict=False),
    Kind("grader's trusted child", "trusted", GRADE, scenes.HARD, GRADE, PASSED, strict=False),
    Kind("torchrun's agent", "agent", CELL_OF_TORCHRUN, scenes.ENDS, strict=False),
    Kind("torchrun's worker", "worker", CELL_OF_TORCHRUN, scenes.HARD, strict=False),
    Kind("torchrun's guard", "guard", CELL_OF_TORCHRUN, scenes.ENDS, strict=False),
    *(Kind("kernel, interrupted", "owner", cell, (signal.SIGINT,)) for cell in (
        "%%ranks 4\n" + CALLS, TRANSFER, "%%ranks 4 --fresh\n" + CALLS, GRADE)),
]  # fmt: skip
OFTEN_KINDS = 10  # the first of them, ranks in cells, which cost the least time
ON_HOSTS = [
    Kind("rank, on emulated hosts", "rank", HOSTS, scenes.HARD, strict=False),
    Kind("preloaded process, of emulated hosts", "server", HOSTS, scenes.ENDS, strict=False),
    Kind("kernel with emulated hosts, interrupted", "owner", HOSTS, (signal.SIGINT,)),
]  # fmt: skip
CELLS = {
    "in collectives": "%%ranks 4\n" + CALLS * 20, "in a transfer": TRANSFER * 9,
    "starting ranks": "%%ranks 4 --fresh\n" + CALLS,
    "in %%torchrun": CELL_OF_TORCHRUN + "\ntime.sleep(9)",
    "in a grading": GRADE, "with a hidden process": "%%ranks 4\n" + HIDDEN + CALLS * 20,
    "on emulated hosts": HOSTS + CALLS * 9,
}  # fmt: skip
WAYS = ("SIGKILL", "SIGTERM", "shutdown", "restart", "restart at once")
OFTEN = 3  # times as many kills of them as of all else


def share(part: float) -> int:
    """How many of all kills one test makes."""
    return max(1, round(KILLS * part))


@pytest.fixture(scope="module")
def journal() -> Iterator[Any]:
    kept = scenes.Journal()
    yield kept
    print("\n" + kept.table())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path, Path]]:
    """A mark, a folder of exercises with an answer in it, and a folder for temporary files."""
    mark, course, temporary = secrets.token_hex(8), tmp_path / "course", tmp_path / "tmp"
    (course / "exercises" / EXERCISE).parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "solutions" / EXERCISE, course / "exercises" / EXERCISE)
    (course / "grading").symlink_to(ROOT / "grading")
    temporary.mkdir()
    for name in ("runtime", "ipython", "mpl"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(remains.MARK, mark)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "mpl"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield mark, course, temporary
    now = remains.Census(mark, ()).take()
    nothing = remains.Census(mark, (temporary, tmp_path / "runtime"), devices=now.devices,
                             segments=now.segments)  # fmt: skip
    assert not remains.left_after(nothing, scenes.PATIENCE)


def deck(kinds: list[Any], count: int, dice: random.Random) -> list[Any]:
    """So many kinds, as different as can be."""
    drawn: list[Any] = []
    while len(drawn) < count:
        drawn += dice.sample(kinds, len(kinds))
    return drawn[:count]


def test_a_notebook_survives(place: Any, journal: Any) -> None:
    dice = random.Random(f"survives {SEED}")
    notebook = scenes.Notebook(*place)
    kinds = SURVIVED[:OFTEN_KINDS] * OFTEN + SURVIVED[OFTEN_KINDS:]
    kinds += ON_HOSTS if why_not() is None else []
    try:
        for kind in deck(kinds, share(0.25), dice):
            notebook.strike(kind, dice, journal)
        assert journal.rows, "nobody was there to be killed"
    finally:
        notebook.close()


def test_a_kernel_that_ends_takes_all_along(place: Any, journal: Any) -> None:
    dice = random.Random(f"kernel {SEED}")
    cells = [cell for cell in CELLS if why_not() is None or "hosts" not in cell]
    for where in deck(cells, share(0.1), dice):
        way = dice.choice(WAYS)
        nothing = remains.Census(place[0], (place[2],)).take()
        notebook = scenes.Notebook(*place)
        killer = threading.Thread(target=end_kernel, args=(notebook, way, dice.uniform(0, 4)))
        killer.start()
        notebook.kernel.client.execute(CELLS[where])
        killer.join()
        begin = time.monotonic()
        if way.startswith("restart"):
            notebook.kernel.client.wait_for_ready(timeout=120)
            notebook.run("%load_ext course_lib")
            assert "sum 4" in notebook.run("%%ranks 4\n" + MEET).text
        notebook.close()
        left = remains.left_after(nothing, scenes.PATIENCE)
        journal.add(f"kernel, {where}: {way}", way, time.monotonic() - begin, left)
        assert not left, f"{where}, {way}: {left}"


def end_kernel(notebook: Any, way: str, moment: float) -> None:
    """Ends it from outside, in one of the ways in which JupyterLab or a system does."""
    time.sleep(moment)
    manager = notebook.kernel.manager
    if way.startswith("SIG"):
        os.kill(notebook.kernel.pid, signal.Signals[way])
    elif way == "shutdown":
        manager.shutdown_kernel(now=False)
    else:
        manager.restart_kernel(now=way == "restart at once")


# --- the command ---------------------------------------------------------------------------------
def course(*words: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "course_lib.grade.cli", *words], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def is_valid(folder: Path) -> None:
    """What was written is whole; a result of before goes first, so there may be none yet."""
    for path in (folder / "out.json", folder / ".course" / "progress.json"):
        if path.exists() or path.name != "out.json":
            assert isinstance(json.loads(path.read_text()), dict)


def test_the_command_at_any_moment(place: Any, journal: Any) -> None:
    """`course grade` and what it started; its own end, or what it says of theirs."""
    dice = random.Random(f"command {SEED}")
    mark, folder, temporary = place
    words = ("grade", NAME, "--json", "out.json")
    begin = time.monotonic()
    whole = course(*words, folder=folder)
    assert PASSED in whole.communicate(timeout=240)[0]
    life = time.monotonic() - begin
    before = remains.Census(mark, (temporary, folder)).take()
    roles = [("owner", (signal.SIGINT, *scenes.ENDS))] * 3 + [
        ("rank", scenes.HARD), ("trusted", scenes.HARD), ("server", scenes.ENDS)]  # fmt: skip
    for role, signals in deck(roles, share(0.15), dice):
        number = dice.choice(signals)
        command = course(*words, folder=folder)
        killer = scenes.Killer(command.pid, role, number, dice.uniform(0, life), dice)
        text, _ = command.communicate(timeout=240)
        ended = time.monotonic()
        killer.now()
        code, named = command.returncode, scenes.words_of(number) in " ".join(text.split())
        about = f"{role}, {number}: {code}\n{text}"
        if role == "owner":
            assert code in (0, 130, -number), about
        else:
            expected = {"rank": (0, 1, 4), "trusted": (0, 4), "server": (0,)}[role]
            assert code in expected and (code == 0 or named), about
        is_valid(folder)
        assert code in (130, -number) or (folder / "out.json").exists(), about
        left = remains.left_after(before, scenes.PATIENCE)
        left = [line for line in left if not DRAFT.search(line)]
        seconds = max(0.0, (time.monotonic() if role == "owner" else ended) - killer.at)
        if killer.hit:
            journal.add(f"course grade, {role}", number, seconds, left)
        assert not left, f"{about}\n{left}"
    assert PASSED in course(*words, folder=folder).communicate(timeout=240)[0]
    assert not remains.left_after(before, scenes.PATIENCE)


class Watching:
    """`course watch` at work; its output is read by a thread."""

    def __init__(self, folder: Path) -> None:
        self.path, self.text = folder / "exercises" / EXERCISE, ""
        self.process = course("watch", NAME, folder=folder)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.until(lambda text: "watching" in text)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def until(self, done: Callable[[str], bool], seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not done(self.text):
            assert time.monotonic() < deadline and self.process.poll() is None, self.text
            time.sleep(0.02)

    def saved(self) -> str:
        """Saves the file; the card that comes."""
        begin = len(self.text)
        self.path.write_text(self.path.read_text())
        self.until(lambda text: ENDED.search(text[begin:]) is not None)
        return self.text[begin:]

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_watch_survives_what_it_started(place: Any, journal: Any) -> None:
    """Ranks, trusted process and preloaded process of `course watch`; then itself."""
    dice = random.Random(f"watch {SEED}")
    mark, folder, temporary = place
    watching = Watching(folder)
    try:
        assert PASSED in watching.saved()
        begin = time.monotonic()
        assert PASSED in watching.saved()
        life, pid = time.monotonic() - begin, watching.process.pid
        before = remains.Census(mark, (temporary, folder), (pid,)).take()
        roles = [("rank", scenes.HARD), ("trusted", scenes.HARD), ("server", scenes.ENDS)]
        for role, signals in deck(roles, share(0.1), dice):
            number = dice.choice(signals)
            killer = scenes.Killer(pid, role, number, dice.uniform(0, life), dice)
            text = watching.saved()
            ended = time.monotonic()
            killer.now()
            if PASSED not in text:
                assert scenes.words_of(number) in " ".join(text.split()), f"{role}\n{text}"
            assert PASSED in watching.saved(), f"{role}, {number}: {watching.text}"
            left = remains.left_after(before, scenes.PATIENCE)
            if killer.hit:
                journal.add(f"course watch, {role}", number, max(0.0, ended - killer.at), left)
            assert not left, f"{role}, {number}: {left}\n{text}"
    finally:
        watching.end(dice.choice((signal.SIGINT, *scenes.ENDS)))
    is_json = json.loads((folder / ".course" / "progress.json").read_text())
    assert is_json["exercises"][NAME]["finished"]


SCRIPT_OF_RANKS = """
import torch
from course_lib import comm
from course_lib.ranks import run_on_ranks

def work(group, count):
    for _ in range(count):
        tensor = torch.ones(1000)
        comm.all_reduce(tensor, group)
    return int(tensor[0])

if __name__ == "__main__":
    print(run_on_ranks(work, 4, 50{more}), flush=True)
    print(run_on_ranks(work, 2, 50), flush=True)
"""


def test_a_script_at_any_moment(place: Any, journal: Any) -> None:
    """A program that calls `run_on_ranks`, killed while it starts, works, starts again, ends."""
    dice = random.Random(f"script {SEED}")
    mark, folder, temporary = place
    for hosts in deck([False, True] if why_not() is None else [False], share(0.05), dice):
        more = ", hosts=2, mbit=300" if hosts else ""
        (folder / "script.py").write_text(SCRIPT_OF_RANKS.replace("{more}", more))
        before = remains.Census(mark, (temporary, folder)).take()
        number, moment = dice.choice((signal.SIGINT, *scenes.ENDS)), dice.uniform(0, 6)
        script = subprocess.Popen([sys.executable, "script.py"], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        killer = scenes.Killer(script.pid, "owner", number, moment, dice)
        text, errors = script.communicate(timeout=240)
        killer.now()
        if script.returncode == 0:
            assert text == "[4, 4, 4, 4]\n[2, 2]\n"
        else:
            assert script.returncode in (1, -number), errors
        left = remains.left_after(before, scenes.PATIENCE)
        kind = f"script, {'on emulated hosts' if hosts else 'on one host'}"
        journal.add(kind, number, time.monotonic() - killer.at, left)
        assert not left, f"{number} after {moment:.2f} s: {left}\n{errors}"


# --- a pool in this process ----------------------------------------------------------------------
def test_a_pool_survives(place: Any, journal: Any) -> None:
    """Ranks and the preloaded process, in whatever a program does with a pool."""
    dice = random.Random(f"pool {SEED}")
    mark, _, temporary = place
    big = torch.zeros(1 << 24)
    with Pool(3) as pool:
        works(pool)
        before = remains.Census(mark, (temporary,), (os.getpid(),)).take()
        doing = {
            "in collectives": lambda: pool.run_cell(CALLS),
            "in a transfer of 64 MiB": lambda: (pool.push(x=big), pool.pull("x", rank=1)),
            "in a figure": lambda: pool.run_cell(FIGURES.partition("\n")[2]),
            "in a restart": lambda: (pool.stop(), pool.run_cell(CALLS)),
            "in exit and start": lambda: (pool.run_cell("1"), pool.stop(), pool.start()),
        }
        roles = [("rank", scenes.ANY)] * 8 + [("two ranks", scenes.HARD)] * 2
        roles += [("server", scenes.ENDS)]
        lives = {what: seconds_of(act) for what, act in doing.items()}
        for role, signals in deck(roles, share(0.35), dice):
            what, number = dice.choice(list(doing)), dice.choice(signals)
            moment = dice.uniform(0, 1.1 * lives[what])
            killer = scenes.Killer(os.getpid(), role, number, moment, dice)
            said, seconds = told_by(doing[what])
            killer.now()
            about = f"{role}, {what}, {signal.Signals(number).name} after {moment:.3f} s: {said}"
            named = scenes.words_of(number) in " ".join(said.split())
            assert not said or named or number == signal.SIGINT, about
            told_by(lambda: works(pool))  # hit just now, it is this one that says so
            if number == signal.SIGINT:
                pool.stop()  # an import that was interrupted stays half done
            if remains.ended(killer.hit, number):
                told_by(lambda: works(pool))
            works(pool)
            left = remains.left_after(before, scenes.PATIENCE)
            if killer.hit:
                name = f"{role}, {what}: {signal.Signals(number).name}"
                journal.add(name, number, max(0.0, seconds - killer.at), left)
            assert not left, f"{about}\nleft: {left}"


def works(pool: Pool) -> None:
    """All ranks meet, and have the same sum."""
    assert pool.run(world_sum) == [pool.world_size] * pool.world_size


def world_sum(group: Group) -> float:
    tensor = torch.ones(1)
    comm.all_reduce(tensor, group)
    return float(tensor)


def seconds_of(act: Callable[[], Any]) -> float:
    act()  # the first time imports
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def told_by(act: Callable[[], Any]) -> tuple[str, float]:
    """What is said of its failure, "" if it did not fail; and when."""
    try:
        done = act()
    except (RanksError, ServerDied, Refusal) as error:
        return str(error), time.monotonic()
    outcome = done[-1] if isinstance(done, tuple) else done
    return (outcome.story() if isinstance(outcome, Outcome) else ""), time.monotonic()
