"""The proof of a suite: the starter fails kindly, right answers pass, wrong ones are named.

Notebook: none; `course dev zoo` and the tests run it.
Source: mutation testing (DeMillo, Lipton, Sayward, 1978), with mutants that learners really write.
Costs one grading for each file.
The production version runs over all submissions of earlier years.

A file in tests/mutants/LESSON/NAME begins with a docstring whose first line is
`mutant: words, that, the card, must contain` or `variant: what is different`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.grade.build import is_given, starter
from course_lib.grade.card import Card
from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import as_text


@dataclass(frozen=True)
class Animal:
    """One file whose verdict is known.

    Attributes:
        kind: `starter`, `solution`, `variant`, `mutant`, or `broken` for a starter to repair.
        path: the file.
        words: what its card must contain.
    """

    kind: str
    path: Path
    words: tuple[str, ...] = ()

    def complaint(self, card: Card) -> str:
        """What is wrong with the grader's verdict on this file; "" if it is right."""
        text = as_text(card)
        if self.kind in ("solution", "variant") and card.status != "full":
            return f"is right, but was graded {card.status}:\n{text}"
        if self.kind == "starter" and card.status != "not_written":
            return f"is untouched, but was graded {card.status}:\n{text}"
        if self.kind == "broken" and (card.status != "failed" or card.score):
            return f"is untouched, but was graded {card.status}, {card.score} points:\n{text}"
        if self.kind == "mutant" and card.status not in ("failed", "no_load", "tampered"):
            return f"is wrong, but was graded {card.status}"
        flat = " ".join(text.split())
        missing = [word for word in self.words if word not in flat]
        return f"fails without the words {missing}:\n{text}" if missing else ""


def animals(entry: Entry) -> list[Animal]:
    """All files of an exercise whose verdict is known.

    Raises:
        ValueError: a file's docstring does not say what it is.
    """
    first = "broken" if is_given(entry) else "starter"
    known = [Animal(first, entry.path), Animal("solution", entry.solution)]
    return known + [_animal(path) for path in sorted(entry.mutants.glob("*.py"))]


def _animal(path: Path) -> Animal:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kind, _, rest = (ast.get_docstring(tree) or "").partition("\n")[0].partition(":")
    if kind not in ("mutant", "variant"):
        raise ValueError(f"{path.name} must begin with a docstring 'mutant: ...' or 'variant: ...'")
    words = tuple(word.strip() for word in rest.split(",")) if kind == "mutant" else ()
    return Animal(kind, path, tuple(word for word in words if word))


def inspect(entry: Entry, grader: Grader, folder: Path) -> Iterator[tuple[Animal, Card, str]]:
    """Grades all animals of an exercise.

    Args:
        entry: the exercise.
        grader: grades them.
        folder: where the starter is written, since the learner may have worked on his.

    Yields:
        The animal, its card, and what is wrong with that; "" if nothing is.
    """
    for animal in animals(entry):
        path = animal.path
        if animal.kind in ("starter", "broken"):
            path = folder / f"{entry.name}.py"
            path.write_text(starter(entry), encoding="utf-8")
        card = grader.grade(entry, path)
        yield animal, card, animal.complaint(card)
