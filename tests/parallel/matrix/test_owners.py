"""Owners: balanced by cost, and pieces that come back as what was made of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import CommError, Group
from course_lib.parallel import Cut, Exchange, choose_owners

Ranks = Callable[..., list[Any]]


def test_the_busiest_owner_has_at_most_four_thirds_of_the_best() -> None:
    assert sorted(choose_owners([5, 5, 4, 4, 3, 3, 3], 3)) == [0, 0, 0, 1, 1, 2, 2]
    costs = [8, 7, 6, 5, 4]
    owners = choose_owners(costs, 2)
    loads = [sum(c for c, o in zip(costs, owners, strict=True) if o == i) for i in range(2)]
    assert max(loads) == 17 and sum(loads) == 30  # the best is 15


def test_equal_costs_are_dealt_out_and_more_owners_than_matrices_are_left_idle() -> None:
    assert choose_owners([1, 1, 1], 2) == [0, 1, 0]
    assert choose_owners([2.5], 4) == [0]
    assert choose_owners([], 4) == []


def cuts_of(shapes: list[tuple[int, int]], size: int) -> list[Cut]:
    """Unequal ranges; index 0 has nothing of every second matrix."""
    made = []
    for number, shape in enumerate(shapes):
        count = shape[0] * shape[1]
        ends = [0, *(count * (i + number % 2) // (size + number % 2) for i in range(size)), count]
        ends = sorted(ends)[: size + 1]
        ends[-1] = count
        made.append(Cut(shape, tuple(zip(ends[:-1], ends[1:], strict=True))))
    return made


@pytest.mark.parametrize("members", [(0, 1, 2), (2, 0), (1,)])
def test_what_owners_make_of_the_whole_comes_back_in_pieces(
    ranks: Ranks, members: tuple[int, ...]
) -> None:
    shapes = [(3, 4), (5, 2), (1, 1), (4, 4)]

    def on_rank(world: Group) -> tuple[list[list[float]], int, list[int]] | None:
        others = [i for i in range(3) if i not in members]
        group = world.split([p for p in (members, others) if p], "dp")
        if world.rank not in members:
            return None
        cuts = cuts_of(shapes, group.size)
        whole = [torch.arange(float(r * c)).view(r, c) + 100 * i for i, (r, c) in enumerate(shapes)]
        pieces = [
            w.view(-1)[slice(*cut.ranges[group.index])] for w, cut in zip(whole, cuts, strict=True)
        ]
        exchange = Exchange(cuts, choose_owners([r * c for r, c in shapes], group.size), group)
        with group.ledger.record() as calls:
            owned = exchange.to_owners(pieces)
            back = exchange.back({n: 2 * w for n, w in owned.items()}, pieces)
        right = all(torch.equal(owned[n], whole[n]) for n in owned)
        right &= all(torch.equal(b, 2 * p) for b, p in zip(back, pieces, strict=True))
        assert right
        return [b.tolist() for b in back], calls.count, sorted(owned)

    results = [r for r in ranks(on_rank, 3) if r is not None]
    assert all(count == 2 for _, count, _ in results)
    assert sorted(n for _, _, owned in results for n in owned) == [0, 1, 2, 3]


def test_ranges_that_leave_a_gap_are_refused(ranks: Ranks) -> None:
    def on_rank(world: Group) -> str:
        with pytest.raises(CommError) as error:
            Exchange([Cut((2, 4), ((0, 3), (4, 8)))], [0], world)
        return str(error.value)

    assert "the elements that follow" in ranks(on_rank, 2)[0]
