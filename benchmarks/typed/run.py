"""Runs an answer's scene under the recorder, and reads what its types say."""

from __future__ import annotations

import time
import types
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.typed.scenes import SCENES
from course_lib.comm import Group
from course_lib.grade.author.answers import edited, known_answers
from course_lib.ranks.pool.outcome import RanksError
from course_lib.ranks.pool.pool import Pool
from course_lib.spmd import types_of
from course_lib.spmd.record import Recorder

ROOT = Path(__file__).parents[2]
LIMIT = 20.0  # seconds for one answer


class Answer(NamedTuple):
    """An answer of known verdict.

    Attributes:
        name: its own, or `solution`.
        wrong: whether it must be refused.
        text: the file.
    """

    name: str
    wrong: bool
    text: str


class Judged(NamedTuple):
    """What the types say of an answer.

    Attributes:
        ended: whether the scene ran to its end on all ranks.
        findings: in words.
        error: why it did not end.
        seconds: of the slowest rank, recording included.
        operations: how many a rank recorded.
    """

    ended: bool
    findings: tuple[str, ...]
    error: str
    seconds: float
    operations: int


def answers(place: str) -> list[Answer]:
    """The solution of an exercise (`LESSON/NAME`), its variants and its mutants."""
    solution = (ROOT / "solutions" / f"{place}.py").read_text()
    wrong, right = known_answers(ROOT / "grading" / "mutants" / f"{place}.py")
    return [
        Answer("solution", False, solution),
        *(Answer(each.name, False, each.source) for each in right),
        *(Answer(each.name, True, edited(solution, each.edits)) for each in wrong),
    ]


def recorded(group: Group, place: str, text: str, record: bool = True) -> dict[str, Any]:
    """Plays the scene of one answer on this rank; the record and how long it took."""
    learner: Any = types.ModuleType("answer")
    exec(compile(text, "answer.py", "exec"), learner.__dict__)
    begin = time.perf_counter()
    if not record:
        SCENES[place](learner, group)
        return {"seconds": time.perf_counter() - begin}
    with Recorder(group.ledger) as recorder:
        names = SCENES[place](learner, group)
    return {**recorder.to_dict(names), "seconds": time.perf_counter() - begin}


def judge(pool: Pool, place: str, answer: Answer) -> Judged:
    """What the types say of an answer's scene."""
    try:
        records = pool.run(recorded, place, answer.text, timeout=LIMIT)
    except RanksError as error:
        return Judged(False, (), str(error).strip().splitlines()[-1], 0.0, 0)
    found = tuple(map(str, types_of(records).findings))
    seconds = max(record["seconds"] for record in records)
    return Judged(True, found, "", seconds, len(records[0]["calls"]))
