"""The proof of a suite: the starter fails kindly, right answers pass, wrong ones are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from course_lib.grade.author.answers import Wrong, edited, harmless_slips, known_answers
from course_lib.grade.author.borrowed import borrowed
from course_lib.grade.author.build import is_given, starter
from course_lib.grade.author.group_slips import group_slips
from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_text
from course_lib.trace import Refusal

RIGHT = ("solution", "variant")
TRIVIAL = "trivial.py"
NEAR = 0.01  # of what an open exercise's suite says about an answer's figure


@dataclass(frozen=True)
class KnownAnswer:
    """One answer whose verdict is known.

    Attributes:
        kind: `starter`, `solution`, `variant` for another right one, `mutant` for a wrong one, or
            `broken` for a starter to repair.
        entry: the exercise.
        name: of the file that is graded.
        source: its text.
        words: what its card must contain.
    """

    kind: str
    entry: Entry
    name: str
    source: str
    words: tuple[str, ...] = ()

    def file(self, folder: Path) -> Path:
        """The file to grade, written to `folder`: the reader's own may be worked on."""
        path = folder / self.entry.name / self.kind / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.source, encoding="utf-8")
        return path

    @property
    def told(self) -> float | None:
        """The figure that an open exercise's suite says of this answer; None if it says none."""
        scale = self.entry.exercise.scale
        if scale is None or self.kind not in RIGHT:
            return None
        return scale.ours if self.kind == "solution" else scale.trivial if self.trivial else None

    @property
    def trivial(self) -> bool:
        """Whether it is the simplest valid answer to an open exercise."""
        return self.kind == "variant" and self.name == TRIVIAL

    def complaint(self, card: Card) -> str:
        """What is wrong with the grader's verdict on this file; "" if it is right."""
        text = as_text(card)
        if self.kind in RIGHT and card.status != "full":
            return f"is right, but was graded {card.status}:\n{text}"
        if (told := self.told) is not None and abs((card.figure or 0.0) - told) > NEAR * abs(told):
            return f"is measured at {card.figure}, but the suite says {told}"
        if self.kind == "starter" and card.status != "not_written":
            return f"is untouched, but was graded {card.status}:\n{text}"
        if self.kind == "broken" and (card.status != "failed" or card.score):
            return f"is untouched, but was graded {card.status}, {card.score} points:\n{text}"
        if self.kind == "mutant" and card.status not in ("failed", "no_load", "tampered"):
            return f"is wrong, but was graded {card.status}"
        flat = " ".join(text.split())
        missing = [word for word in self.words if word not in flat]
        return f"fails without the words {missing}:\n{text}" if missing else ""


def answers_of(entry: Entry) -> list[KnownAnswer]:
    """All answers of an exercise whose verdict is known.

    Raises:
        Refusal: an edit does not fit the solution.
    """
    solution, given = entry.solution.read_text(encoding="utf-8"), starter(entry)
    first = "broken" if is_given(given) else "starter"
    wrong, right = known_answers(entry.mutants)
    own = f"{entry.name}.py"
    return [
        KnownAnswer(first, entry, own, given),
        KnownAnswer("solution", entry, own, solution),
        *(KnownAnswer("variant", entry, f"{each.name}.py", each.source.lstrip()) for each in right),
        *(
            KnownAnswer(
                "mutant", entry, f"{each.name}.py", _whole(entry, solution, each), tuple(each.words)
            )
            for each in wrong
        ),
        *_group_slips(entry, solution),
        *_borrowed(entry, solution),
    ]


def _group_slips(entry: Entry, solution: str) -> Iterator[KnownAnswer]:
    """Answers that take the world for their group, but for those to which it is the same."""
    same = harmless_slips(entry.mutants)
    for name, text in group_slips(solution):
        if name not in same:
            yield KnownAnswer("mutant", entry, f"{name}.py", text)


def _borrowed(entry: Entry, solution: str) -> Iterator[KnownAnswer]:
    """The answer that takes what it should define from the library, if the library has it."""
    text = borrowed(solution, entry.defines)
    if text is not None:
        words = "this exercise does not allow: course_lib."
        yield KnownAnswer("mutant", entry, "the_librarys_own.py", text, (words,))


def _whole(entry: Entry, solution: str, answer: Wrong) -> str:
    """A wrong answer's text; a refusal names the answer and its file."""
    try:
        return edited(solution, answer.edits)
    except Refusal as error:
        where = entry.mutants.relative_to(entry.root)
        asked = f"the answer {answer.name} in {where}: {error.asked}"
        raise Refusal(asked, error.found, error.why) from None


class Verdict(NamedTuple):
    """What the grader says about one answer.

    Attributes:
        answer: which.
        seed: of the hidden inputs.
        card: its card.
        complaint: what is wrong with that; "" if nothing is.
    """

    answer: KnownAnswer
    seed: int
    card: Card
    complaint: str


def right_answers(known: Sequence[KnownAnswer]) -> list[KnownAnswer]:
    """The solutions, then the variants."""
    return [answer for kind in RIGHT for answer in known if answer.kind == kind]


def verdicts(
    known: Sequence[KnownAnswer], seeds: Sequence[int], graders: Sequence[Grader], folder: Path
) -> Iterator[Verdict]:
    """Grades answers under seeds.

    Args:
        known: the answers.
        seeds: of the hidden inputs; all answers are graded under one before the next.
        graders: as many gradings run side by side. They do not disturb each other: what a grading
            limits is processor time, and memory of its own processes.
        folder: for the files.

    Yields:
        A verdict for each, in the order asked for, as soon as it and all before it are known.
    """
    free: SimpleQueue[Grader] = SimpleQueue()
    for each in graders:
        free.put(each)

    def judge(answer: KnownAnswer, path: Path, seed: int) -> Verdict:
        grader = free.get()
        try:
            card = grader.grade(answer.entry, path, seed=seed)
        finally:
            free.put(grader)
        return Verdict(answer, seed, card, answer.complaint(card))

    files = [(answer, answer.file(folder)) for answer in known]
    with ThreadPoolExecutor(len(graders)) as pool:
        asked = [pool.submit(judge, *each, seed) for seed in seeds for each in files]
        try:
            for future in asked:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
