"""owner_plan: choose owners for matrices, so that no rank computes much longer than the others.

Notebook 19. This exercise is open: it has no single right answer. Valid plans are compared by the
operations of the busiest rank.

The optimizer's step for a matrix needs the whole matrix on one rank, its owner, but the matrices
are cut into pieces: rank i has pieces[n][i] elements of matrix n, possibly none. The other ranks
send their elements to the owner. With r the shorter side of the matrix and c the longer one, the
owner computes

    4·r²·c + 2·r³ operations,

and sends the result back, as many elements as it received. Few elements are sent if each matrix is
owned by the rank that has most of it, but then some ranks compute much more than others.
`owner_muon` divides the operations evenly and ignores what is sent. Here, all ranks together may
send at most `limit` elements, to the owners and back.

You return one owner for each matrix. A plan is valid if
- every owner is a rank, and at most `limit` elements are sent in all; this always holds if each
  matrix is owned by the rank that has most of it;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the operations of the rank with the most, divided by a lower bound for them: the mean over
the ranks or the operations for the largest matrix, whichever is more. Less is better. The figure is
the mean over twelve fixed cases.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

Change = list[tuple[int, int]]  # some matrices, each with its new owner


def owner_plan(
    shapes: Sequence[tuple[int, int]], pieces: Sequence[Sequence[int]], limit: int
) -> list[int]:
    """Chooses an owner for each matrix.

    Args:
        shapes: (rows, columns) of each matrix.
        pieces: for each matrix, how many of its elements each rank has; the list's length is the
            number of ranks.
        limit: elements that all ranks together may send, to the owners and back.

    Returns:
        The rank that owns each matrix, as an int from 0.
    """
    # BEGIN SOLUTION: the owners
    costs = [4 * r * r * c + 2 * r**3 for r, c in map(sorted, shapes)]
    home = [max(range(len(counts)), key=lambda i: counts[i]) for counts in pieces]
    usual = sum(costs) // sum(map(sum, pieces))  # operations for an element
    plans = [home, *(_cheapest(costs, pieces, usual * part // 8) for part in range(64))]
    valid = [_Plan(owners, costs, pieces) for owners in plans]
    valid = [plan for plan in valid if plan.sent <= limit]
    for plan in valid:
        plan.improve(limit)
    return min(valid, key=lambda plan: max(plan.loads)).owners


def _cheapest(costs: Sequence[int], pieces: Sequence[Sequence[int]], price: int) -> list[int]:
    """Gives the most expensive matrix first to the rank with the least to do.

    An element that stays where it is counts as `price` operations less. A price of 0 gives
    `choose_owners`; a high price leaves every matrix with the rank that has most of it.
    """
    loads, owners = [0] * len(pieces[0]), [0] * len(costs)
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owners[n] = min(range(len(loads)), key=lambda i: loads[i] - price * pieces[n][i])
        loads[owners[n]] += costs[n]
    return owners


class _Plan:
    """Owners, their operations, and the number of elements that all ranks send."""

    def __init__(
        self, owners: list[int], costs: Sequence[int], pieces: Sequence[Sequence[int]]
    ) -> None:
        self.owners, self.costs, self.pieces = [*owners], costs, pieces
        self.loads = [0] * len(pieces[0])
        for owner, cost in zip(owners, costs, strict=True):
            self.loads[owner] += cost
        self.sent = sum(2 * (sum(p) - p[o]) for o, p in zip(owners, pieces, strict=True))

    def improve(self, limit: int) -> None:
        """Moves single matrices and swaps pairs until no change helps.

        It compares the sum of the loads' fourth powers, which small changes affect too; the largest
        load often stays the same.
        """
        before = None
        while before != self.owners:
            before = [*self.owners]
            for change in self._changes():
                new, more = self._after(change)
                old = sum(self.loads[owner] ** 4 for owner in new)
                if self.sent + more <= limit and sum(load**4 for load in new.values()) < old:
                    self.sent += more
                    for n, owner in change:
                        self.owners[n] = owner
                    for owner, load in new.items():
                        self.loads[owner] = load

    def _changes(self) -> Iterator[Change]:
        for n in range(len(self.costs)):
            for owner in range(len(self.loads)):
                yield [(n, owner)]
        for a, b in combinations(range(len(self.costs)), 2):
            yield [(a, self.owners[b]), (b, self.owners[a])]

    def _after(self, change: Change) -> tuple[dict[int, int], int]:
        """The loads that a change affects, and how many more elements are sent after it."""
        new: dict[int, int] = {}
        more = 0
        for n, owner in change:
            old = self.owners[n]
            new[old] = new.get(old, self.loads[old]) - self.costs[n]
            new[owner] = new.get(owner, self.loads[owner]) + self.costs[n]
            more += 2 * (self.pieces[n][old] - self.pieces[n][owner])
        return new, more

    # END SOLUTION
