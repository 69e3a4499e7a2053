"""owner_plan: owners for matrices, so that no rank computes much longer than the others.

Notebook 19. Open: there is no right answer.

pieces[n][i] elements of matrix n are on rank i. Its owner is sent all others, computes

    4·r²·c + 2·r³ operations, r the shorter side and c the longer one,

and sends as many elements back. So it is cheap to leave a matrix where most of it is, but the
operations are then divided badly. `owner_muon` divides them well, whatever that sends; here all
ranks together may send no more than `limit` elements, there and back.

Valid is a list of each matrix's owner:
- at most `limit` elements sent; where most of it is for each matrix is always within that;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the busiest owner's operations, over a bound that no plan can beat: the mean over the
ranks, or the largest matrix if that is more; the mean of twelve fixed cases.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

Change = list[tuple[int, int]]  # matrices, each with its new owner


def owner_plan(
    shapes: Sequence[tuple[int, int]], pieces: Sequence[Sequence[int]], limit: int
) -> list[int]:
    """The owner of each matrix.

    Args:
        shapes: (rows, columns) of each matrix.
        pieces: for each matrix the number of elements that each rank has of it.
        limit: elements that all ranks together may send in a step.
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
    """The most expensive matrix first, to whoever has least, elements that stay counted as less.

    With a price of 0 for an element this is `choose_owners`; a high price leaves all at home.
    """
    loads, owners = [0] * len(pieces[0]), [0] * len(costs)
    for n in sorted(range(len(costs)), key=lambda n: -costs[n]):
        owners[n] = min(range(len(loads)), key=lambda i: loads[i] - price * pieces[n][i])
        loads[owners[n]] += costs[n]
    return owners


class _Plan:
    """Owners, what they have to do, and the elements that all send."""

    def __init__(
        self, owners: list[int], costs: Sequence[int], pieces: Sequence[Sequence[int]]
    ) -> None:
        self.owners, self.costs, self.pieces = [*owners], costs, pieces
        self.loads = [0] * len(pieces[0])
        for owner, cost in zip(owners, costs, strict=True):
            self.loads[owner] += cost
        self.sent = sum(2 * (sum(p) - p[o]) for o, p in zip(owners, pieces, strict=True))

    def improve(self, limit: int) -> None:
        """Moves matrices, and exchanges two, until nothing helps.

        The sum of the loads' fourth powers is looked at: unlike the largest it tells small steps
        apart.
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
        """The loads that it changes, and the elements that are sent in addition."""
        new: dict[int, int] = {}
        more = 0
        for n, owner in change:
            old = self.owners[n]
            new[old] = new.get(old, self.loads[old]) - self.costs[n]
            new[owner] = new.get(owner, self.loads[owner]) + self.costs[n]
            more += 2 * (self.pieces[n][old] - self.pieces[n][owner])
        return new, more

    # END SOLUTION
