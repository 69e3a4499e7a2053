"""The tables of docs/wrappers.md, from the rows of the zoo and from what torch made of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

from tests.parallel.zoo.habits.table import table as habits
from tests.parallel.zoo.others.theirs import THEIRS, recorded
from tests.parallel.zoo.specimen import Specimen
from tests.parallel.zoo.table import ROWS
from tests.parallel.zoo.wrappers import OURS

PAGE = Path(__file__).parents[3] / "docs" / "wrappers.md"


def cell(row: Specimen, wrapper: str) -> str:
    """What the zoo holds a wrapper to on a model."""
    kind, words = row.expected(wrapper)
    return {"refused": f"refused: {words}", "unfit": f"unfit: {row.unfit}"}.get(kind, kind)


def table() -> str:
    """The rows in Markdown, a line each."""
    head = ["| the model has | " + " | ".join(OURS) + " |", "|---" * (len(OURS) + 1) + "|"]
    body = [f"| {row.what} | " + " | ".join(cell(row, w) for w in OURS) + " |" for row in ROWS]
    return "\n".join([*head, *body]) + "\n"


def cut(words: str) -> str:
    """The first words of an error."""
    return shorten(words, 80, placeholder=" …")


def their_table() -> str:
    """The rows in which one of torch's own wrappers is not equal to one process."""
    found = recorded()
    head = ["| the model has | " + " | ".join(THEIRS) + " |", "|---" * (len(THEIRS) + 1) + "|"]
    body = [
        f"| {row.what} | " + " | ".join(cut(found[row.name][wrapper]) for wrapper in THEIRS) + " |"
        for row in ROWS
        if set(found[row.name].values()) != {"equal"}
    ]
    return "\n".join([*head, *body]) + "\n"


def renewed(text: str) -> str:
    """The page with its tables as they are to be."""
    tables = (("zoo", table()), ("habits", habits()), ("zoo under torch", their_table()))
    for mark, written in tables:
        begin, end = (f"<!-- written from the {mark}: {word} -->\n" for word in ("begin", "end"))
        before, rest = text.split(begin)
        text = before + begin + "\n" + written + "\n" + end + rest.split(end)[1]
    return text
