"""The causes among which a reader of the cold cases commits, before the page names one."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from course_lib.plot.court.vote import VOTE_CSS, framed


class Case(NamedTuple):
    """A question, its possible answers, and what the evidence says of each.

    Attributes:
        question: what is asked; the answers are listed behind it.
        answers: each with the evidence that speaks against it; "" for the right one.
        why: the reasoning that unfolds below the field.
    """

    question: str
    answers: tuple[tuple[str, str], ...]
    why: str


# The one place with the answers of appendix A2. Its page must not tell them above the field.
CASES = {
    1: Case(
        "Which is the cause?",
        (
            ("a link or an adapter that fails", "Evidence 3: it is there without a network."),
            ("a rank that is too slow for the watchdog", "Evidence 1: the odd rank is ahead."),
            ("a collective that depends on what a rank has read", ""),
            ("a loss that not all ranks gather", "Evidence 1: it waits for the others there."),
        ),
        "An expert without tokens is not in the graph of that rank, so its gradient never comes, "
        "its hook does not fire, and one reduce-scatter is missing on that rank.",
    ),
    2: Case(
        "Which repair gives the model that one process would have trained?",
        (
            (
                "copy rank 0's weight to all ranks after each step",
                "Evidence 5: rank 0's gradient holds a fifth of the whole one.",
            ),
            (
                "average the copies after each step",
                "Evidence 5: a mean of four parts is a quarter of the whole.",
            ),
            ("sum the norm's gradients over the ranks", ""),
            (
                "average the norm's gradients over the ranks",
                "Evidence 5: a mean of four parts is a quarter of the whole.",
            ),
        ),
        "Each rank's loss is a sum over its own tokens, divided by the number of all tokens. So "
        "each gradient is a part of the whole one, and parts are added. A mean would be right if "
        "each rank had divided by the number of its own tokens, as in data parallelism.",
    ),
    3: Case(
        "Which is the cause?",
        (
            ("positions that are rounded when the model is built", ""),
            (
                "shards that are put together or reduced in the wrong order",
                "Evidence 2: the gathered weight is right, and one process has the same loss.",
            ),
            (
                "products and sums in bf16",
                "Evidence 1: ZeRO-2 in bf16 has them as well.",
            ),
            (
                "a mean in which long texts count too much",
                "Evidence 3: the first 257 tokens of a long text are right, the others wrong.",
            ),
        ),
        "The loss is right for the first 257 tokens, positions 0 to 256: bf16 has 8 significant "
        "bits, and 257 is the first whole number that it cannot hold. ZeRO-3 builds the model in "
        "bf16, ZeRO-2 casts it later.",
    ),
}


def commit(case: int) -> Commitment:
    """The answer field of a cold case: a button for each answer; a wrong one shows the evidence.

    Args:
        case: its number on the page, from 1.
    """
    return Commitment(case, CASES[case])


class Commitment:
    """The question of a cold case and a button for each of its answers; see `commit`.

    Attributes:
        number: of the case.
        case: its question and answers.
    """

    def __init__(self, number: int, case: Case) -> None:
        self.number = number
        self.case = case

    def __repr__(self) -> str:
        return f"Commitment(case {self.number})"

    @property
    def right(self) -> int:
        """The place of the right answer, from 0."""
        (place,) = (n for n, (_, against) in enumerate(self.case.answers) if not against)
        return place

    def _repr_html_(self) -> str:
        """Question, answers and, unfolding, the reasoning; where scripts run, the buttons too."""
        answers = self.case.answers
        task = {
            "choices": [str(number) for number in range(1, len(answers) + 1)],
            "right": self.right,
            "replies": [against or "So does the evidence." for _, against in answers],
            "counted": False,
            "css": VOTE_CSS,
        }
        listed = "".join(f"<li>{escape(text)}</li>" for text, _ in answers)
        body = (
            f'<p style="margin:0"><strong>Commit.</strong> {escape(self.case.question)}</p>'
            f'<ol style="margin:4px 0 8px;padding-left:2em">{listed}</ol>'
            f"<details><summary>Show the answer and why</summary>"
            f'<p style="margin:6px 0 0"><strong>{self.right + 1}.</strong> '
            f"{escape(self.case.why)}</p></details>"
        )
        return framed(f"The answer to case {self.number}", body, task)
