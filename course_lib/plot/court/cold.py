"""The causes among which a reader of the cold cases commits, before the page names one."""

from __future__ import annotations

from typing import NamedTuple

from course_lib.plot.player.predict import Prediction, predict


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
        "After which repair is the run that of one process?",
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
                "Evidence 3: the first 256 tokens of a long text are right, the others wrong.",
            ),
        ),
        "The loss is right for the first 256 tokens: bf16 has 8 significant bits, and 257 is the "
        "first whole number that it cannot hold. ZeRO-3 builds the model in bf16, ZeRO-2 casts it "
        "later.",
    ),
}


def commit(case: int) -> Prediction:
    """The answer field of a cold case: the number of an answer; a wrong one shows the evidence.

    Args:
        case: its number on the page, from 1.
    """
    question, answers, why = CASES[case]
    listed = "; ".join(f"{number}: {text}" for number, (text, _) in enumerate(answers, 1))
    against: dict[float, str] = {n: reason for n, (_, reason) in enumerate(answers, 1) if reason}
    (right,) = set(range(1, len(answers) + 1)) - set(against)
    return predict(f"Case {case}. {question} {listed}.", right, why=why, near=against)
