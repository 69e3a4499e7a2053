"""The table of docs/wrappers.md, from the rows of the zoo."""

from __future__ import annotations

from pathlib import Path

from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.table import ROWS
from tests.parallel.zoo.wrappers import OURS

PAGE = Path(__file__).parents[3] / "docs" / "wrappers.md"
BEGIN, END = "<!-- written from the zoo: begin -->\n", "<!-- written from the zoo: end -->\n"


def cell(row: Specimen, wrapper: str) -> str:
    """What the zoo holds a wrapper to on a model."""
    kind, words = row.expected(wrapper)
    return {"refused": f"refused: {words}", "unfit": f"unfit: {row.unfit}"}.get(kind, kind)


def table() -> str:
    """The rows in Markdown, a line each."""
    head = ["| the model has | " + " | ".join(OURS) + " |", "|---" * (len(OURS) + 1) + "|"]
    body = [f"| {row.what} | " + " | ".join(cell(row, w) for w in OURS) + " |" for row in ROWS]
    return "\n".join([*head, *body]) + "\n"


def renewed(text: str) -> str:
    """The page with its table as it is to be."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]
