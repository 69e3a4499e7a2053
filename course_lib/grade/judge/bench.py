"""What all checks of one grading share: the subject, the seed, and the runs made so far."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grade.faults import EXPENSIVE, Fault, RunFault
from course_lib.grade.judge import driver
from course_lib.grade.judge.audit import audited
from course_lib.grade.judge.terms import Limits, Subject
from course_lib.grade.judge.trial import Trial
from course_lib.grade.rank import payload
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.ranks.system.scratch import working_folder
from course_lib.trace import Ledger, Timeline

KEPT = 1 << 26  # bytes of a result that is kept for the same question; larger ones are rare
PATIENCE = 2  # runs that may use up their whole budget before the rest is not run


@dataclass
class Result:
    """What one run brought back.

    Attributes:
        world: how many ranks.
        outputs: what the driver returned, in rank order.
        ledgers: each rank's ledger.
        fault: what went wrong, for `run.attempt`; None if every rank answered.
        printed: the last lines that the learner's code printed.
        weight: bytes of memory that it takes, or less.
    """

    world: int
    outputs: list[Any] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    fault: Fault | None = None
    printed: str = ""
    weight: int = 0

    @property
    def timeline(self) -> Timeline:
        """The ledgers of all ranks."""
        return Timeline(self.ledgers)

    def column(self, name: str | int) -> list[Any]:
        """One entry of every rank's output, a dict or a list, in rank order."""
        return [output[name] for output in self.outputs]


class Bench:
    """What all checks of one grading share.

    Args:
        server: forks the ranks.
        subject: whose code is graded.
        seed: from which the hidden inputs are drawn.
        folder: where runs may put files.
    """

    def __init__(self, server: ForkServer, subject: Subject, seed: int, folder: str) -> None:
        self.server, self.subject, self.seed, self.folder = server, subject, seed, folder
        self._known: dict[str, Result] = {}
        self._drivers: dict[str, list[dict[str, Any]]] = {}
        self._spent = 0

    def result(
        self, drive: str, inputs: list[dict[str, Any]], limits: Limits, folder: str | None
    ) -> Result:
        """The result of a run; made once for the same question, unless it has a folder."""
        key = hashlib.sha256(repr((drive, limits, len(inputs))).encode())
        for given in inputs:
            data, raw = payload.pack(given)
            key.update(repr(data).encode() + raw)
        name = key.hexdigest()
        if folder is not None:
            return self._run(drive, inputs, limits, folder, asked=True)
        if name in self._known:
            return self._known[name]
        with working_folder(self.folder) as fresh:
            result = self._run(drive, inputs, limits, fresh)
        if result.weight <= KEPT:
            self._known[name] = result
        return result

    def _modules(self, drive: str) -> list[dict[str, Any]]:
        """What a driver runs in, cut out of the suite once."""
        if drive not in self._drivers:
            suite, root = Path(self.subject.suite), Path(self.subject.root)
            self._drivers[drive] = driver.cut(suite, root, drive)
        return self._drivers[drive]

    def _run(
        self,
        drive: str,
        inputs: list[dict[str, Any]],
        limits: Limits,
        folder: str,
        asked: bool = False,
    ) -> Result:
        if self._spent >= PATIENCE:
            text = "two runs before it used up all they had"
            return Result(len(inputs), fault=Fault("skipped", text))
        # Ranks with a network of torch's can reach each other anyway, and signal by files.
        together = asked or self.subject.network == "torch"
        trial = Trial(self.server, self.subject, limits, folder, together)
        fault = trial.run(drive, self._modules(drive), inputs)
        self._spent += fault is not None and fault.kind in EXPENSIVE
        printed = _printed([view.tail for view in trial.ranks])
        if fault is not None:
            return Result(len(inputs), fault=fault, printed=printed)
        try:
            return _result(trial, printed)
        except RunFault as error:
            return Result(len(inputs), fault=error.fault, printed=printed)
        except Exception as error:  # of a value that can be written down, but not made again
            text = f"what came back cannot be read: {type(error).__name__}: {error}"[:500]
            return Result(len(inputs), fault=Fault("exception", text), printed=printed)


def _result(trial: Trial, printed: str) -> Result:
    answers = [view.answer for view in trial.ranks]
    return Result(
        len(answers),
        [payload.unpack(view.answer["output"], view.raw) for view in trial.ranks],
        [_ledger(trial, rank) for rank in range(len(answers))],
        printed=printed,
        weight=sum(view.inbox.weight for view in trial.ranks),
    )


def _ledger(trial: Trial, rank: int) -> Ledger:
    """A rank's ledger, held against the switch's book where there is one."""
    said = Ledger.from_dict(trial.ranks[rank].answer["ledger"])
    said.rank = rank
    return audited(said, trial.switch.book[rank]) if trial.switch is not None else said


def _printed(tails: Sequence[bytes]) -> str:
    """The last lines of what was printed, once if all ranks printed the same."""
    texts = [tail.decode(errors="replace").strip() for tail in tails]
    if len(set(texts)) == 1:
        return "\n".join(texts[0].splitlines()[-3:])
    lines = [
        f"rank {rank}: {line}" for rank, text in enumerate(texts) for line in text.splitlines()[-1:]
    ]
    return "\n".join(lines[:4])
