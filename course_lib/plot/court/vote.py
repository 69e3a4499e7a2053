"""The vote on a statement: true, false or only if, cast before the cell below is run."""

from __future__ import annotations

from html import escape

from course_lib.plot.player.live import live_script
from course_lib.plot.player.predict import FIELD_CSS, FRAME

CHOICES = ("true", "false", "only if")
# The one place with the verdicts of appendix A1. Its page must not tell them before the vote.
VERDICTS = {
    1: "false", 2: "only if", 3: "false", 4: "false", 5: "only if",
    6: "only if", 7: "false", 8: "true", 9: "false", 10: "only if",
    11: "only if", 12: "false", 13: "true", 14: "only if", 15: "true",
    16: "only if", 17: "false", 18: "only if", 19: "only if", 20: "only if",
    21: "only if", 22: "false", 23: "false", 24: "only if", 25: "true",
}  # fmt: skip


def vote(statement: int) -> Vote:
    """Three buttons for a statement of the claims court, and how often the reader agreed so far.

    Args:
        statement: its number on the page, from 1.
    """
    return Vote(statement, VERDICTS[statement])


class Vote:
    """A statement's three buttons; see `vote`. The reasons stand on the page, below the evidence.

    Attributes:
        statement: its number.
        verdict: one of `CHOICES`.
    """

    def __init__(self, statement: int, verdict: str) -> None:
        self.statement = statement
        self.verdict = verdict

    def __repr__(self) -> str:
        return f"Vote(statement {self.statement})"

    def _repr_html_(self) -> str:
        """The buttons, where scripts run; without them, the request to write the vote down."""
        name = f"Vote on statement {self.statement}"
        task = {
            "choices": CHOICES,
            "verdict": CHOICES.index(self.verdict),
            "css": FIELD_CSS.replace("cp-predict", "cp-vote"),
        }
        return (
            f'<div class="cp cp-vote" role="group" aria-label="{escape(name)}" '
            f'style="{FRAME}" data-lm-suppress-shortcuts="true">'
            f'<p style="margin:0 0 6px"><strong>{name}</strong>: true, false or only if? '
            f"Then run the next cell and open the verdict.</p></div>"
            f"{live_script('vote', name, task)}"
        )
