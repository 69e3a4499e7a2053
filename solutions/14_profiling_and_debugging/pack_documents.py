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
    # BEGIN SOLUTION: the rows
    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)


def _best_fit(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Places the longest document first, each in the row where it leaves the least room.

    This never takes more than 11/9 of the fewest possible rows, plus a few (Johnson et al., 1974).
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for number in _longest_first(lengths):
        fits = [place for place, free in enumerate(room) if free >= lengths[number]]
        if not fits:
            rows.append([])
            room.append(row)
            fits = [len(rows) - 1]
        place = min(fits, key=lambda place: room[place])
        rows[place].append(number)
        room[place] -= lengths[number]
    return rows


def _fullest_rows(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Fills row after row: the longest document left, and those that best fill the rest."""
    rows, left = [], _longest_first(lengths)
    while left:
        first, *others = left
        room = row - lengths[first]
        sums: dict[int, tuple[int, ...]] = {0: ()}  # the documents that first reached each sum
        for number in others:
            for tokens, chosen in list(sums.items()):
                if tokens + lengths[number] <= room:
                    sums.setdefault(tokens + lengths[number], (*chosen, number))
            if room in sums:
                break
        beside = sums[max(sums)]
        rows.append([first, *beside])
        left = [number for number in others if number not in beside]
    return rows


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda number: -lengths[number])
    # END SOLUTION
