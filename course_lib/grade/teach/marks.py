"""What is kept of a class: a folder for each student, and one table of marks.

The files:
  marks.csv                 a line a student: points in all and for each exercise, and what is odd
  look_at.csv               a line for all that a person should look at: tampering, breakage, what
                            an answer was refused, what was handed in and not taken, records that
                            somebody has changed
  STUDENT/grades.json       "course-class/1": student, seed, score, points, exercises (cards as
                            `course grade --json` has them, each with its suite's SHA-256), seal
  STUDENT/junit.xml, results.json (Gradescope), feedback.txt (the score cards)
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grade.catalog import Entry
from course_lib.grade.faults import Fault
from course_lib.grade.report import (
    Card,
    as_junit,
    as_text,
    fault_lines,
    write_atomically,
    write_json,
)
from course_lib.grade.teach import gradescope

SCHEMA = "course-class/1"
ODD = ("tampered", "broke")
# Faults that are no slip of somebody who learns.
UNUSUAL = ("tampering", "refused_file", "process", "network", "refused", "disk")
CHANGED = "grades.json is not as it was written here; what it says was not believed"
FORMULA = ("=", "+", "-", "@", "\t")  # a cell that begins so is run by spreadsheets


def suite_digest(entry: Entry) -> str:
    """SHA-256 of a suite; with seed and source, all that a verdict can be repeated from."""
    return hashlib.sha256(entry.suite.read_bytes()).hexdigest()


@dataclass
class Student:
    """One student and the cards so far.

    Attributes:
        name: as the submission is named.
        seed: of the hidden inputs.
        cards: one for each exercise graded.
    """

    name: str
    seed: int
    cards: list[Card] = field(default_factory=list)

    @property
    def score(self) -> int:
        """Points got, in all."""
        return sum(card.score or 0 for card in self.cards)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "schema": SCHEMA,
            "student": self.name,
            "seed": self.seed,
            "score": self.score,
            "points": sum(card.points for card in self.cards),
            "exercises": [
                {**card.to_dict(), "suite": suite_digest(card.entry)} for card in self.cards
            ],
        }


class Marks:
    """The folder of results.

    Args:
        folder: made if it is not there.
        secret: what records are sealed with; None seals nothing. An answer's process must not be
            able to read it, nor any container in which answers run.
        collect: whether records without a seal are taken, as they come from containers.

    Attributes:
        notes: what is unusual beside cards: rows of look_at.csv.
    """

    def __init__(self, folder: Path, secret: bytes | None = None, collect: bool = False) -> None:
        self._folder, self._collect = folder, collect
        self._key = hmac.digest(secret, b"course marks", "sha256") if secret else None
        self.notes: list[tuple[str, str, str, str]] = []

    def before(self, student: Student) -> dict[str, dict[str, Any]]:
        """What an earlier run has found, exercise by exercise; empty if it cannot be read."""
        try:
            text = (self._folder / student.name / "grades.json").read_text(encoding="utf-8")
            data = json.loads(text)
            if self._believed(data):
                return {card["exercise"]: card for card in data["exercises"]}
            self.notes.append((student.name, "", "changed", CHANGED))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass
        return {}

    def _believed(self, data: dict[str, Any]) -> bool:
        seal = data.get("seal")
        if self._key is None or (self._collect and seal is None):
            return True
        return isinstance(seal, str) and hmac.compare_digest(seal.encode(), self._seal(data))

    def _seal(self, data: dict[str, Any]) -> bytes:
        """HMAC-SHA256 of a record without its seal, in hexadecimal digits."""
        rest = {name: value for name, value in data.items() if name != "seal"}
        text = json.dumps(rest, sort_keys=True)
        return hmac.new(self._key or b"", text.encode(), "sha256").hexdigest().encode()

    def keep(self, student: Student) -> None:
        """Writes what is known of a student by now."""
        data = student.to_dict()
        if self._key is not None:
            data["seal"] = self._seal(data).decode()
        write_json(self._folder / student.name / "grades.json", data)

    def finish(self, student: Student) -> None:
        """Writes the other forms."""
        place = self._folder / student.name
        write_atomically(place / "junit.xml", as_junit(student.cards))
        write_json(place / "results.json", gradescope.results(student.cards, student.seed))
        write_atomically(place / "feedback.txt", "\n\n".join(map(as_text, student.cards)) + "\n")

    def table(self, students: Sequence[Student], chosen: Sequence[Entry]) -> None:
        """Writes the two tables of the class."""
        names = [entry.name for entry in chosen]
        rows = [_row(student, names) for student in students]
        head = ["student", "seed", "score", "points", *names, "look at"]
        write_atomically(self._folder / "marks.csv", _csv([head, *rows]))
        odd = [
            (student.name, card.entry.name, card.status, _why(card))
            for student in students
            for card in student.cards
            if _odd(card)
        ]
        look = _csv([["student", "exercise", "status", "why"], *self.notes, *odd])
        write_atomically(self._folder / "look_at.csv", look)


def _row(student: Student, names: Sequence[str]) -> list[object]:
    got = {card.entry.name: "" if card.score is None else card.score for card in student.cards}
    odd = [f"{card.entry.name} {card.status}" for card in student.cards if _odd(card)]
    points = sum(card.points for card in student.cards)
    return [
        student.name,
        student.seed,
        student.score,
        points,
        *(got.get(name, "") for name in names),
        "; ".join(odd),
    ]


def _odd(card: Card) -> bool:
    return card.status in ODD or bool(_unusual(card))


def _unusual(card: Card) -> list[Fault]:
    """Faults that are no slip, those that were aimed at the grading first."""
    faults = [card.fault, *(result.fault for result in card.checks)]
    found = [fault for fault in faults if fault is not None and fault.kind in UNUSUAL]
    return sorted(found, key=lambda fault: UNUSUAL.index(fault.kind))


def _why(card: Card) -> str:
    """The sentence that says what was tried, or what broke."""
    tried = _unusual(card)
    if tried:
        return " ".join(fault_lines(tried[0]))
    return card.internal.strip().rpartition("\n")[2]


def _csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if str(cell).startswith(FORMULA) else cell for cell in row])
    return text.getvalue()
