"""pack_documents: documents into rows of one length, none cut, with as little padding as you can.

Notebook 14. Open: there is no right answer.

The problem: 90 to 140 documents of known lengths go into rows of `row` tokens. A row holds whole
documents, in any order. What they leave of the row is padding, and costs as much as text.

Valid is a list of rows, each a list of documents' numbers from 0 on:
- every document is in one row, and no row is empty;
- the lengths in a row add up to at most `row`;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: padding, in % of all tokens of the rows; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence


def pack_documents(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Puts documents into rows.

    Args:
        lengths: tokens of each document, from 1 to `row`.
        row: tokens of a row.

    Returns:
        For each row the numbers of its documents.
    """
    raise NotImplementedError("pack_documents: the rows")
