"""The proof of a suite: the starter fails kindly, right answers pass, wrong ones are named.

Notebook: none; `course dev zoo` and the tests run it.
Source: mutation testing (DeMillo, Lipton, Sayward, 1978), with mutants that learners really write.
Costs one grading for each file and seed.
The production version runs over all submissions of earlier years.

A file in tests/mutants/LESSON/NAME begins with a docstring whose first line is
`mutant: words, that, the card, must contain` or `variant: what is different`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from course_lib.grade.build import is_given, starter
from course_lib.grade.card import Card
from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import as_text

RIGHT = ("solution", "variant")


@dataclass(frozen=True)
class Animal:
    """One file whose verdict is known.

    Attributes:
        kind: `starter`, `solution`, `variant`, `mutant`, or `broken` for a starter to repair.
        entry: the exercise.
        path: the file; None for a starter, which is made of the solution.
        words: what its card must contain.
    """

    kind: str
    entry: Entry
    path: Path | None
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.entry.name}.py" if self.path is None else self.path.name

    def file(self, folder: Path) -> Path:
        """The file to grade; a starter is written to `folder`: the reader's may be worked on."""
        if self.path is not None:
            return self.path
        path = folder / self.name
        path.write_text(starter(self.entry), encoding="utf-8")
        return path

    def complaint(self, card: Card) -> str:
        """What is wrong with the grader's verdict on this file; "" if it is right."""
        text = as_text(card)
        if self.kind in RIGHT and card.status != "full":
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
    known = [Animal(first, entry, None), Animal("solution", entry, entry.solution)]
    return known + [_animal(entry, path) for path in sorted(entry.mutants.glob("*.py"))]


def _animal(entry: Entry, path: Path) -> Animal:
    with path.open(encoding="utf-8") as file:  # thousands of files, whose first line is enough
        first = file.readline().rstrip().removesuffix('"""')
    kind, _, rest = first.removeprefix('"""').partition(":")
    if kind not in ("mutant", "variant"):
        raise ValueError(f"{path.name} must begin with a docstring 'mutant: ...' or 'variant: ...'")
    words = tuple(word.strip() for word in rest.split(",")) if kind == "mutant" else ()
    return Animal(kind, entry, path, tuple(word for word in words if word))


class Verdict(NamedTuple):
    """The grader's word on one animal.

    Attributes:
        animal: which.
        seed: of the hidden inputs.
        card: its card.
        complaint: what is wrong with that; "" if nothing is.
    """

    animal: Animal
    seed: int
    card: Card
    complaint: str


def right_answers(known: Sequence[Animal]) -> list[Animal]:
    """The solutions, then the variants."""
    return [animal for kind in RIGHT for animal in known if animal.kind == kind]


def verdicts(
    known: Sequence[Animal], seeds: Sequence[int], graders: Sequence[Grader], folder: Path
) -> Iterator[Verdict]:
    """Grades animals under seeds.

    Args:
        known: the animals.
        seeds: of the hidden inputs; all animals are graded under one before the next.
        graders: as many gradings run side by side. They do not disturb each other: what a grading
            limits is processor time, and memory of its own processes.
        folder: for starters.

    Yields:
        A verdict each, in the order asked for, as soon as it and all before it are there.
    """
    free: SimpleQueue[Grader] = SimpleQueue()
    for each in graders:
        free.put(each)

    def judge(animal: Animal, path: Path, seed: int) -> Verdict:
        grader = free.get()
        try:
            card = grader.grade(animal.entry, path, seed=seed)
        finally:
            free.put(grader)
        return Verdict(animal, seed, card, animal.complaint(card))

    files = [(animal, animal.file(folder)) for animal in known]
    with ThreadPoolExecutor(len(graders)) as pool:
        asked = [pool.submit(judge, *each, seed) for seed in seeds for each in files]
        try:
            for future in asked:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
