"""pack_documents: documents into rows of one length, none cut, with as little padding as you can.

Notebook 14. Open: there is no right answer.

The problem: 90 to 140 documents of known lengths go into rows of `row` tokens. A row holds whole
documents, in any order. What they leave of the row is padding, and costs as much as text.

Valid is a list of rows, each a list of documents' numbers from 0 on:
- every document is in one row, and no row is empty;
- the lengths in a row add up to at most `row`;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: padding, in % of all tokens of the rows; the mean of twelve fixed cases.
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
    # BEGIN SOLUTION: the rows
    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)


def _best_fit(lengths: Sequence[int], row: int) -> list[list[int]]:
    """Longest first, each into the row that it leaves least room in.

    Never more than 11/9 of the fewest rows, and a few more (Johnson et al., 1974).
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
    """Row after row: the longest document left, and those that fill up best what it leaves."""
    rows, left = [], _longest_first(lengths)
    while left:
        first, *others = left
        room = row - lengths[first]
        sums: dict[int, tuple[int, ...]] = {0: ()}  # reached by these, the longest that do
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
