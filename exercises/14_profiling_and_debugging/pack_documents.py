"""pack_documents: pack whole documents into rows of equal length with little padding.

Notebook 14. This exercise is open: it has no single right answer. Valid answers are compared by
their padding.

You get the lengths of 90 to 140 documents (some hidden cases have fewer), and pack them into rows
of `row` tokens. No document is cut. A row holds any documents in any order; what they do not fill
is padding, and costs as much time as text.

You return a list of rows, each a list of the numbers of its documents, which count from 0. An
answer is valid if
- every document is in exactly one row, and no row is empty;
- the lengths of the documents in a row add up to at most `row`;
- two ranks that get the same arguments return the same rows: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the padding in percent of the tokens of all rows; less is better. The figure is the mean
over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence


def pack_documents(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Packs the documents into rows.

    Args:
        lengths: the number of tokens of each document, from 1 to `row`.
        row: the number of tokens that fit into a row.

    Returns:
        For each row, the numbers of its documents.
    """
    raise NotImplementedError("pack_documents: the rows")
