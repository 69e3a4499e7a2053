"""The vote on a statement: true, false or only if, cast before the cell below is run."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from course_lib.plot.player.live import live_script
from course_lib.plot.player.predict import FIELD_CSS, FRAME

CHOICES = ("true", "false", "only if")
VOTE_CSS = FIELD_CSS.replace("cp-predict", "cp-vote")
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
            "right": CHOICES.index(self.verdict),
            "replies": [
                "So does the court." if choice == self.verdict else "The court says otherwise."
                for choice in CHOICES
            ],
            "counted": True,
            "css": VOTE_CSS,
        }
        asked = f"<strong>{name}</strong>: true, false or only if?"
        return framed(name, f'<p style="margin:0 0 6px">{asked}</p>', task)


def framed(name: str, body: str, task: Mapping[str, Any]) -> str:
    """A frame in which `vote.js` puts buttons below what is asked.

    Args:
        name: the frame's `aria-label`.
        body: HTML of what is asked; the buttons come before its `details`, if it has any.
        task: what `vote.js` is given.
    """
    return (
        f'<div class="cp cp-vote" role="group" aria-label="{escape(name)}" '
        f'style="{FRAME}" data-lm-suppress-shortcuts="true">{body}</div>'
        f"{live_script('vote', name, task)}"
    )
