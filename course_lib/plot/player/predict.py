"""The answer field of a lesson's "Predict": a number, committed to before the cell below is run."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from course_lib.plot.player.live import live_script
from course_lib.plot.player.style import ROLE_CSS

FIELD_CSS = (
    ROLE_CSS + ".cp-predict form{display:flex;flex-wrap:wrap;align-items:center;gap:8px;margin:0}"
    ".cp-predict input{width:11em;padding:5px 8px;font:inherit;color:var(--cp-ink);"
    "background:var(--cp-paper);border:1px solid var(--cp-soft);border-radius:5px}"
    ".cp-predict input::placeholder{color:var(--cp-soft)}"
    ".cp-predict button{padding:5px 14px;font:inherit;color:#fff;background:#0072B2;border:0;"
    "border-radius:5px;cursor:pointer}"
    ".cp-predict form p{flex-basis:100%;min-height:1.4em;margin:0;padding-left:8px;"
    "border-left:4px solid transparent}"
    ".cp-predict .cp-right{border-color:#009E73}.cp-predict .cp-wrong{border-color:#E69F00}"
    ".cp-predict :focus-visible{outline:3px solid #56B4E9;outline-offset:1px}"
)
FRAME = "border-left:4px solid #0072B2;padding:8px 14px;margin:4px 0;max-width:760px;font-size:14px"


def predict(
    question: str,
    answer: float,
    unit: str = "",
    *,
    why: str,
    near: Mapping[float, str] | None = None,
    tolerance: float = 0.01,
) -> Prediction:
    """A question whose answer is a number, checked in the browser.

    The reader may write 1.5, 1,5, 3/2 or 12e6; Enter or the button checks it. A wrong answer is
    told how far off it is, or, where it is in `near`, what was probably overlooked.

    Args:
        question: what is to be predicted, as plain text.
        answer: the right number, in `unit`.
        unit: `MiB`, `ms`, ...; "" for a plain number.
        why: the reasoning that unfolds below, as plain text.
        near: wrong number to what it means.
        tolerance: relative error that still counts as right.
    """
    return Prediction(question, answer, unit, why, dict(near or {}), tolerance)


class Prediction:
    """A question with an answer field; see `predict`."""

    def __init__(
        self,
        question: str,
        answer: float,
        unit: str,
        why: str,
        near: dict[float, str],
        tolerance: float,
    ) -> None:
        self.question = question
        self.answer = answer
        self.unit = unit
        self.why = why
        self.near = near
        self.tolerance = tolerance

    def __repr__(self) -> str:
        return f"Prediction({self.question})"

    def shown(self) -> str:
        """The answer with its unit."""
        return f"{self.answer:.6g} {self.unit}".rstrip()

    def _repr_html_(self) -> str:
        """The question and, unfolding, the reasoning; where scripts run, the answer field too."""
        task = {
            "question": self.question,
            "answer": self.answer,
            "shown": self.shown(),
            "unit": self.unit,
            "near": list(self.near.items()),
            "tolerance": self.tolerance,
            "css": FIELD_CSS,
        }
        return (
            f'<div class="cp cp-predict" role="group" aria-label="{escape(self.question)}" '
            f'style="{FRAME}" data-lm-suppress-shortcuts="true">'
            f'<p style="margin:0 0 6px"><strong>Predict.</strong> {escape(self.question)}</p>'
            f"<details><summary>Show the answer and why</summary>"
            f'<p style="margin:6px 0 0"><strong>{escape(self.shown())}.</strong> '
            f"{escape(self.why)}</p></details></div>{live_script('predict', self.question, task)}"
        )
