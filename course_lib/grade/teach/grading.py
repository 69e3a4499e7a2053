"""Grades a class: one student after the other, whatever they handed in.

What is finished is on the disk before the next file is opened, and is not graded again unless
the file, the suite or the seed has changed.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.grade.catalog import Entry
from course_lib.grade.faults import Fault
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, legible
from course_lib.grade.teach.handed_in import NotTaken, Read, Submission
from course_lib.grade.teach.imported import Imported
from course_lib.grade.teach.marks import Marks, Student, suite_digest
from course_lib.ranks.system.scratch import scratch_folder

MOVED = "files that gradings import have changed, while or after this student was graded"
Said = Callable[[str, Card, bool], None]


def grade_class(
    found: Sequence[Submission],
    chosen: Sequence[Entry],
    seeds: Callable[[str], int],
    marks: Marks,
    grader: Callable[[], Grader],
    say: Said,
    code: Imported,
) -> list[Student]:
    """Grades every chosen exercise of every student.

    Args:
        found: the submissions.
        chosen: the exercises.
        seeds: a student's seed.
        marks: where results are kept.
        grader: makes a grader, a fresh one for each student.
        say: called after each exercise with the student, the card, and whether it was known.
        code: what gradings import.

    Returns:
        All students, with their cards. If somebody interrupts, the last may have fewer, and so
        if a file that gradings import has changed: nobody's marks could be believed then.
    """
    done: list[Student] = []
    for submission in found:
        if changed := code.changed():
            last = done[-1].name if done else ""
            marks.notes.append((last, "", "stopped", f"{MOVED}: {', '.join(changed[:3])}"))
            break
        student = Student(submission.student, seeds(submission.student))
        done.append(student)
        with grader() as judge:
            complete = _grade_student(judge, submission, chosen, student, marks, say)
        marks.finish(student)
        marks.table(done, chosen)
        if not complete:
            break
    marks.table(done, chosen)
    return done


def _grade_student(
    judge: Grader,
    submission: Submission,
    chosen: Sequence[Entry],
    student: Student,
    marks: Marks,
    say: Said,
) -> bool:
    """Adds the cards of one student; False if somebody interrupted."""
    before = marks.before(student)
    with submission.opened() as read:
        for entry in chosen:
            card, known = _card(judge, read, entry, student.seed, before.get(entry.name))
            student.cards.append(card)
            marks.keep(student)
            say(student.name, card, known)
            if card.interrupted:
                break
    faults = [(card.entry, card.fault) for card in student.cards if card.fault is not None]
    missing = [entry for entry, fault in faults if fault.kind == "missing_file"]
    for name, like in submission.like(missing).items():
        why = f"not where the file belongs: {', '.join(map(legible, like[:3]))}"
        marks.notes.append((student.name, name, "not taken", why))
    return not any(card.interrupted for card in student.cards)


def _card(
    judge: Grader, read: Read, entry: Entry, seed: int, old: dict[str, Any] | None
) -> tuple[Card, bool]:
    """The card of one exercise, and whether it was known from an earlier run."""
    try:
        data = read(entry)
    except NotTaken as error:
        return _without_file(entry, seed, "refused_file", str(error)), False
    if data is None:
        return _without_file(entry, seed, "missing_file", f"{entry.name}.py: not handed in"), False
    known = _known(entry, seed, data, old)
    if known is not None:
        return known, True
    try:
        with scratch_folder() as folder:
            copy = folder / f"{entry.name}.py"
            copy.write_bytes(data)
            return judge.grade(entry, copy, seed=seed), False
    except Exception:  # one bad submission never stops the class
        return Card(entry, seed, internal=traceback.format_exc()[-3000:], complete=True), False


def _without_file(entry: Entry, seed: int, kind: str, why: str) -> Card:
    return Card(entry, seed, fault=Fault(kind, legible(why)), complete=True)


def _known(entry: Entry, seed: int, data: bytes, old: dict[str, Any] | None) -> Card | None:
    """The card of an earlier run, if everything it depends on is as it was then."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        same = (
            old is not None
            and old["seed"] == seed
            and old["suite"] == suite_digest(entry)
            and old["source"] == hashlib.sha256(text.encode()).hexdigest()
            and old["status"] not in ("broke", "interrupted", "running")
        )
        return Card.from_dict(entry, old, text) if same and old else None
    except (ValueError, LookupError, TypeError):
        return None  # not text, or a record that somebody has changed: it is graded again
