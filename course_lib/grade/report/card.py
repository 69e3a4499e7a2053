"""The score card: what each check found, as data. words.py and page.py make it readable.

As JSON (`--json`), one object:
  schema      "course-grade/1"
  exercise, lesson, title, core
  seed        of the hidden inputs
  source      SHA-256 of the graded text; "" if there was no file
  status      full, failed, not_written, no_load, broke, tampered, interrupted, running
  score       points got; null if the grader broke
  points      points there are; in a student's copy without those of hidden checks
  hidden      what a student's copy lacks: {"checks", "points"}; zeros in the whole course
  fault       null, or what made it impossible to go on (fields of `faults.Fault`)
  internal    "" or what broke in the grader
  checks      list of: name, title, code, points, hidden, state (passed, failed, not_run), message,
              rank, expected, measured, cause, printed, fault, seconds, figure
  figure      null, or what was measured of a valid answer to an open exercise
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from course_lib.grade.catalog import Entry
from course_lib.grade.checks import Check
from course_lib.grade.faults import LOAD, Fault

SCHEMA = "course-grade/1"
EXIT = {
    "full": 0,
    "failed": 1,
    "not_written": 1,
    "no_load": 3,
    "broke": 4,
    "tampered": 5,
    "interrupted": 130,
    "running": 4,
}


@dataclass
class CheckResult:
    """What became of one check.

    Attributes:
        check: which.
        state: `passed`, `failed` or `not_run`.
        message: what was looked at.
        rank: where it failed; None if everywhere.
        expected: what should be there.
        measured: what is.
        cause: the likely reason.
        printed: the last lines of the learner's printed output.
        fault: the fault that the run ended in.
        seconds: how long it took.
        figure: what it has measured, in an open exercise.
    """

    check: Check
    state: str = "not_run"
    message: str = ""
    rank: int | None = None
    expected: str = ""
    measured: str = ""
    cause: str = ""
    printed: str = ""
    fault: Fault | None = None
    seconds: float = 0.0
    figure: float | None = None

    @property
    def score(self) -> int:
        """Points got."""
        return self.check.points if self.state == "passed" else 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data, flat."""
        data = asdict(self)
        check = data.pop("check")
        return {**check, "score": self.score, **data}

    @staticmethod
    def from_dict(check: Check, data: dict[str, Any]) -> CheckResult:
        """The result that `to_dict` made `data` of."""
        names = {each.name for each in fields(CheckResult)} - {"check", "fault"}
        fault = Fault.from_dict(data["fault"]) if data["fault"] else None
        return CheckResult(check, fault=fault, **{name: data[name] for name in names})


@dataclass
class Card:
    """The score card of one exercise.

    Attributes:
        entry: the exercise.
        seed: of the hidden inputs.
        source: the graded text; None if there was no file.
        checks: one for each check, in order.
        fault: what made it impossible to go on.
        internal: what broke in the grader.
        interrupted: whether somebody stopped it.
        complete: whether the grading has ended.
    """

    entry: Entry
    seed: int = 0
    source: str | None = None
    checks: list[CheckResult] = field(default_factory=list)
    fault: Fault | None = None
    internal: str = ""
    interrupted: bool = False
    complete: bool = False

    def __post_init__(self) -> None:
        if not self.checks:
            self.checks = [CheckResult(check) for check in self.entry.checks]

    @property
    def points(self) -> int:
        """All points there are."""
        return self.entry.points

    @property
    def score(self) -> int | None:
        """Points got; None if the grader broke, 0 if it found tampering."""
        if self.status == "broke":
            return None
        return 0 if self.status == "tampered" else sum(result.score for result in self.checks)

    @property
    def status(self) -> str:
        """One of EXIT's keys."""
        faults = [self.fault, *(result.fault for result in self.checks)]
        kinds = {fault.kind for fault in faults if fault is not None}
        if self.internal:
            return "broke"
        if "tampering" in kinds:
            return "tampered"
        if self.interrupted:
            return "interrupted"
        if self.fault is not None and self.fault.kind in LOAD:
            return "no_load"
        if not self.complete:
            return "running"
        if all(result.state == "passed" for result in self.checks):
            return "full"
        failed = {r.fault.kind if r.fault else "" for r in self.checks if r.state == "failed"}
        return "not_written" if failed == {"not_written"} else "failed"

    @property
    def figure(self) -> float | None:
        """What was measured, in an open exercise; None if the answer is not valid."""
        found = [result.figure for result in self.checks if result.figure is not None]
        return found[-1] if found and self.status == "full" else None

    @property
    def exit_code(self) -> int:
        """The code that `course grade` ends with."""
        return EXIT[self.status]

    @property
    def digest(self) -> str:
        """SHA-256 of the graded text."""
        return hashlib.sha256(self.source.encode()).hexdigest() if self.source is not None else ""

    def record(self, report: dict[str, Any]) -> None:
        """Enters the report of one check."""
        result = next(r for r in self.checks if r.check.name == report["name"])
        result.state = "passed" if report["passed"] else "failed"
        fault = report.get("fault")
        result.fault = Fault.from_dict(fault) if fault else None
        for part in fields(CheckResult):
            if part.name in report and part.name != "fault":
                setattr(result, part.name, report[part.name])
        if result.state == "failed" and not result.cause and not fault:
            result.cause = result.check.diagnosis
        if report.get("broke"):
            self.internal = report["internal"]

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data (see the top of this file)."""
        exercise = self.entry.exercise
        return {
            "schema": SCHEMA,
            "exercise": self.entry.name,
            "lesson": self.entry.lesson,
            "title": exercise.title,
            "core": exercise.core,
            "seed": self.seed,
            "source": self.digest,
            "status": self.status,
            "score": self.score,
            "points": self.points,
            "figure": self.figure,
            "hidden": {"checks": exercise.hidden_checks, "points": exercise.hidden_points},
            "fault": self.fault.to_dict() if self.fault else None,
            "internal": self.internal,
            "checks": [result.to_dict() for result in self.checks],
        }

    @staticmethod
    def from_dict(entry: Entry, data: dict[str, Any], source: str) -> Card:
        """The finished card that `to_dict` made `data` of.

        Args:
            entry: the exercise, as it was.
            data: the card.
            source: the text that was graded, which the data holds the digest of.

        Raises:
            LookupError, TypeError: the data is of another exercise, or no card.
        """
        said = {result["name"]: result for result in data["checks"]}
        return Card(
            entry,
            data["seed"],
            source,
            [CheckResult.from_dict(check, said[check.name]) for check in entry.checks],
            Fault.from_dict(data["fault"]) if data["fault"] else None,
            data["internal"],
            interrupted=data["status"] == "interrupted",
            complete=True,
        )


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that it holds the old text or the new one, whatever happens.

    A killed writer leaves a draft beside it, which the next writer of the file removes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*"):
        writer = left.name.rpartition(".")[2]
        if writer.isdecimal() and not _runs(int(writer)):
            left.unlink(missing_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:  # the disk is full, or there is a folder in its place
        draft.unlink(missing_ok=True)
        raise


def _runs(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def write_json(path: Path, data: Any) -> None:
    """Writes data as JSON, atomically."""
    write_atomically(path, json.dumps(data, indent=1) + "\n")
