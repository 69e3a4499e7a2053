"""What is killed in `test_kills.py`, when, and how the survivor shows that it noticed."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.ranks.system.processes import PROCESSES

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "ranks"))
kernels = importlib.import_module("kernels")
remains = importlib.import_module("remains")

PATIENCE = 40.0  # seconds in which all must be gone: the machine may be busy with other things
HARD = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)
ENDS = (signal.SIGKILL, signal.SIGTERM)
ANY = (*HARD, signal.SIGSTOP, signal.SIGINT)


@dataclass(frozen=True)
class Kind:
    """One way to be killed.

    Attributes:
        name: for the table.
        role: who is killed: `rank`, `two ranks`, `server`, `server's guard`, `trusted`,
            `guard`, `agent`, `worker`, `owner`.
        cell: what runs meanwhile.
        signals: from which one is drawn.
        then: the next cell.
        right: what the next cell must show.
        strict: whether the signal must be named by this cell or the next, if it ended somebody.
    """

    name: str
    role: str
    cell: str
    signals: tuple[int, ...] = HARD
    then: str = "%%ranks 4\nt = torch.ones(1)\ndist.all_reduce(t)\nprint('sum', int(t))"
    right: str = "ranks 0–3 │ sum 4"
    strict: bool = True


@dataclass
class Journal:
    """Every kill, for the table at the end."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, number: int | str, seconds: float, left: list[str]) -> None:
        name = number if isinstance(number, str) else signal.Signals(number).name
        self.rows.append({"kind": kind, "by": name, "seconds": seconds, "left": left})
        if path := os.environ.get("COURSE_KILLS_TABLE"):
            with open(path, "a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")

    def table(self) -> str:
        """kind, count, seconds until it was said (median, most), how often something was left."""
        kinds: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            kinds.setdefault(row["kind"], []).append(row)
        lines = [f"{'killed':<44} {'kills':>5} {'median s':>9} {'most s':>7} {'left':>5}"]
        for kind, rows in sorted(kinds.items()):
            seconds = [row["seconds"] for row in rows]
            lines.append(
                f"{kind:<44} {len(rows):>5} {statistics.median(seconds):>9.2f} "
                f"{max(seconds):>7.2f} {sum(bool(row['left']) for row in rows):>5}"
            )
        return "\n".join([*lines, f"{'in all':<44} {len(self.rows):>5}"])


# --- who -----------------------------------------------------------------------------------------
def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def below(pid: int) -> list[int]:
    """Descendants, the oldest first."""
    found = PROCESSES.children(pid)
    return sorted(found + [grandchild for child in found for grandchild in below(child)])


def victims(owner: int, role: str, dice: random.Random) -> list[int]:
    """Processes that play a role under `owner` just now; none if nobody does."""
    if role == "owner":
        return [owner]
    words = {"guard": "system.guard", "agent": "torch.distributed.run"}
    if role in words or role == "worker":
        under = [(pid, command(pid)) for pid in below(owner)]
        if role == "worker":
            found = [p for p, c in under if c.endswith("script.py ") and "torch.dist" not in c]
        else:
            found = [p for p, c in under if words[role] in c]
        return found[:1]
    guards = [pid for pid in PROCESSES.children(owner) if "preloaded" in command(pid)]
    if role == "server's guard":
        return [dice.choice(guards)] if guards else []
    servers = [pid for guard in guards for pid in PROCESSES.children(guard)]
    if role == "server":
        return [dice.choice(servers)] if servers else []
    forked = sorted(pid for server in servers for pid in PROCESSES.children(server))
    if role == "trusted":
        return forked[:1]
    return dice.sample(forked, min(len(forked), 2 if role == "two ranks" else 1))


class Killer:
    """A thread that kills at its moment; or when `now` is called, if that comes earlier.

    Args:
        owner: the process under which the victim is.
        role: of the victim.
        number: the signal; a function is called instead of it.
        moment: seconds from now.
        dice: draws the victim.
    """

    def __init__(
        self,
        owner: int,
        role: str,
        number: int | Callable[[], None],
        moment: float,
        dice: random.Random,
    ) -> None:
        self._asked = (owner, role, number, dice)
        self._moment = time.monotonic() + moment
        self._hurry = threading.Event()
        self.hit: list[int] = []
        self.falls: list[int] = []  # and what ends with them, a moment later
        self.at = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        owner, role, number, dice = self._asked
        self._hurry.wait(max(0.0, self._moment - time.monotonic()))
        while not (found := victims(owner, role, dice)) and not self._hurry.wait(0.01):
            pass
        self.at = time.monotonic()
        if callable(number):
            number()
            self.hit = found
            return
        self.falls = [each for pid in found for each in (pid, *below(pid))]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                self.hit.append(pid)

    def now(self) -> None:
        """What is there is killed at once, if nobody has been yet; waits until that is done."""
        self._hurry.set()
        self._thread.join()


# --- a notebook ----------------------------------------------------------------------------------
class Notebook:
    """A kernel whose processes carry the mark, with four ranks; its census is taken when it rests.

    Args:
        mark: of its processes; already in this process's environment, for it to inherit.
        folder: where it works; with a folder of exercises in it.
        temporary: where its temporary files are.
    """

    def __init__(self, mark: str, folder: Path, temporary: Path) -> None:
        self._mark, self._folder, self._temporary = mark, folder, temporary
        self._lives: dict[str, float] = {}
        self.kernel = kernels.Kernel(load=False)
        self.settle()

    def settle(self) -> None:
        """Brings it to rest, and counts."""
        for cell in (
            f"%cd -q {self._folder}",
            "%load_ext course_lib",
            "%%ranks 4\nimport matplotlib.pyplot",
            "big = __import__('torch').zeros(1 << 24)",
        ):
            answer = self.run(cell)
            assert answer.status == "ok", answer.text
        self.before = self.census().take()

    def census(self) -> Any:
        return remains.Census(self._mark, (self._temporary, self._folder), (self.kernel.pid,))

    def run(self, cell: str, timeout: float = 240) -> Any:
        return self.kernel.run(cell, timeout)

    def life(self, kind: Kind) -> float:
        """Seconds that the cell takes when nobody is killed; it is run once to see."""
        if kind.cell not in self._lives:
            answer = self.run(kind.cell)
            assert answer.status == "ok", answer.text
            self._lives[kind.cell] = answer.seconds
            self.run(kind.then)
            self.before = self.census().take()
        return self._lives[kind.cell]

    def strike(self, kind: Kind, dice: random.Random, journal: Journal) -> None:
        """Kills once in the life of the cell, or just after it; what follows must be right.

        Whoever lives only a part of the cell may be gone by then: that is no kill.
        """
        number = dice.choice(kind.signals)
        moment = dice.uniform(0, 1.1 * self.life(kind))
        killer = Killer(self.kernel.pid, kind.role, number, moment, dice)
        answers, times = [self.run(kind.cell)], [time.monotonic()]
        killer.now()
        # Hit just as the next cell begins, or before it is felt there, the one after says so.
        for more in (
            lambda: True,
            lambda: remains.ended(killer.falls, number) or not said_in(answers, number),
            lambda: False,
        ):
            if more() or answers[-1].status != "ok":
                answers.append(self.run(kind.then))
                times.append(time.monotonic())
        said = [said_in([answer], number) for answer in answers]
        about = f"{kind.name}, {signal.Signals(number).name} after {moment:.2f} s\n" + "\n".join(
            answer.text for answer in answers
        )
        assert answers[-1].status == "ok" and kind.right in answers[-1].text, about
        if number != signal.SIGINT:
            assert any(said) or not (kind.strict and killer.hit), about
            assert all(a.status == "ok" or words for a, words in zip(answers, said, strict=True)), (
                about
            )
        seconds = times[said.index(True) if any(said) else 0] - killer.at
        left = remains.left_after(self.before, PATIENCE)
        name = f"{kind.name}: {signal.Signals(number).name}"
        if killer.hit:
            journal.add(name, number, max(0.0, seconds), left)
        assert not left, f"{about}\nleft: {left}"

    def close(self) -> None:
        self.kernel.close()
        self.kernel.manager.cleanup_resources()


def said_in(answers: list[Any], number: int) -> bool:
    """Whether any of the answers has the words of a signal."""
    return any(words_of(number) in " ".join(answer.text.split()) for answer in answers)


def words_of(number: int) -> str:
    """How a report names a signal."""
    return "SIGSTOP" if number == signal.SIGSTOP else f"killed by {signal.Signals(number).name}"
