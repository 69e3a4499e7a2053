"""Every exercise's suite: its starter fails kindly, right answers pass, wrong ones are named.

In `make test-all` every file is graded, in `make test` a sample (`course dev zoo` grades all).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.grade.author import build, zoo
from course_lib.grade.catalog import PACKAGE, Entry, entries, suites
from course_lib.grade.grader import Grader

ROOT = PACKAGE.parent
ENTRIES = entries(ROOT)


def files(number: int, entry: Entry) -> list[object]:
    """Files with known verdicts; most are slow.

    Not slow are, of every third exercise, the solution, and of every ninth the starter and one
    more, drawn by lot. The notebooks show all starters' cards; CI grades all solutions on every
    processor.
    """
    known = zoo.answers_of(entry)
    first, others = known[0], known[2:]
    quick = [known[1]] if number % 3 == 0 else []
    quick += [first, others[7 * number % len(others)]] if number % 9 == 0 else []
    return [
        pytest.param(entry, answer, id=f"{entry.name}-{answer.kind}-{Path(answer.name).stem}",
                     marks=[pytest.mark.slow] * (answer not in quick))
        for answer in known
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "answer"),
    [file for number, entry in enumerate(ENTRIES) for file in files(number, entry)],
)
def test_verdict(entry: Entry, answer: zoo.KnownAnswer, grader: Grader, tmp_path: Path) -> None:
    card = grader.grade(entry, answer.file(tmp_path))
    assert answer.complaint(card) == ""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_starter_is_built_from_the_solution(entry: Entry) -> None:
    """Holds whatever the reader has written, since it looks at the list of digests alone."""
    built, noted = build.digest(build.starter(entry).encode()), build.known_digests(ROOT)
    told = f"run `course dev build {entry.name}` and commit what it writes"
    assert noted.get(entry.place) == built, told


def test_every_noted_starter_has_an_exercise() -> None:
    assert set(build.known_digests(ROOT)) == {entry.place for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_committed_starter_is_the_one_that_is_built(entry: Entry) -> None:
    there = entry.path.read_bytes() if entry.path.is_file() else b""
    if build.digest(there) != build.known_digests(ROOT).get(entry.place):
        what = "has been worked on" if there else "is missing"
        pytest.skip(f"needs the starter; exercises/{entry.place} {what}")
    assert there.decode() == build.starter(entry)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_there_are_enough_wrong_and_right_answers(entry: Entry) -> None:
    known = zoo.answers_of(entry)
    kinds = [answer.kind for answer in known]
    wrong = 8 if entry.exercise.core else 4 if entry.exercise.open else 2
    right = 3 if entry.exercise.core else 1
    told = f"{wrong} wrong and {right} right answers belong into {entry.mutants.relative_to(ROOT)}"
    assert kinds.count("mutant") >= wrong and kinds.count("variant") >= right, told
    assert sum(answer.trivial for answer in known) == (entry.exercise.open is not None)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_suite_says_what_it_must(entry: Entry) -> None:
    assert 5 <= entry.points <= 20
    for hint in entry.exercise.hints:
        assert len(hint) > 20, f"{hint!r}: a hint is a sentence that helps"
    assert entry.exercise.minutes > 0


@pytest.mark.parametrize(("kind", "name", "said"), [
    ("solution", "shortest.py", "is measured at 3.0, but the suite says 2.0"),
    ("variant", "trivial.py", "is measured at 3.0, but the suite says 12.0"),
    ("variant", "another.py", ""),
])  # fmt: skip
def test_what_an_open_suite_says_of_its_answers_must_be_so(
    shortest: Entry, grader: Grader, kind: str, name: str, said: str
) -> None:
    shortest.path.write_text("def shortest(total):\n    return [4, 4, 4]\n")
    known = zoo.KnownAnswer(kind, shortest, name, "")
    assert known.complaint(grader.grade(shortest)) == said


def test_every_solution_has_a_suite_and_the_other_way_round() -> None:
    solutions = {p.relative_to(ROOT / "solutions") for p in (ROOT / "solutions").glob("*/*.py")}
    checked = {path.relative_to(ROOT / "grading" / "suites") for path in suites(ROOT)}
    assert solutions == checked
