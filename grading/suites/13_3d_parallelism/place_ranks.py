"""place_ranks: as many ranks on every node as it has room for; the slowest node is the figure.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021),
section 3, for which axis goes inside a node; Hoefler and Snir, "Generic Topology Mapping
Strategies" (2011), for the problem at large, which is NP-hard.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: a mesh on nodes with unequal links",
    core=False,
    minutes=45,
    order=15,
    open=("times the slowest node's time with the ranks in order", 1.0, 0.5087),
    library=(),
    hints=(
        "Rank order is only one of many orders. Sort the ranks by their coordinates with the axes "
        "in a different order, and fill one node after another.",
        "Write a function for the slowest node's time. Try every order of the axes, and keep the "
        "best. The axis with the most bytes should lie inside a node, unless it does not fit.",
        "Then swap two ranks on different nodes if that helps. The largest time alone hardly ever "
        "changes, so compare the sum of the times' fourth powers, and also accept a swap that is "
        "slightly worse now and then.",
    ),
)

SHAPES = ((4, 3, 4), (3, 4, 4), (2, 6, 4), (6, 2, 4), (5, 4, 2), (3, 3, 4), (6, 6), (2, 3, 2, 4),
          (3, 2, 3, 2), (4, 9))  # fmt: skip
ROOM = {48: (6, 8, 12), 40: (5, 8, 10), 36: (4, 6, 9)}  # of a node, for so many ranks
RATES = (50, 50, 100)


class Case(NamedTuple):
    """The function's arguments."""

    shape: list[int]
    sizes: list[int]
    per_node: int
    rates: list[int]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The nodes of each case."""
    return {"plans": [learner.place_ranks(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """A mesh of 36 to 48 ranks that often does not fit nodes evenly; a third of links is fast."""
    shape = SHAPES[draw(0, len(SHAPES), 1)[0]]
    per_node = ROOM[prod(shape)][draw(0, 3, 1)[0]]
    sizes = [number**3 // 1000 for number in draw(20, 200, len(shape))]
    rates = [RATES[number] for number in draw(0, 3, prod(shape) // per_node)]
    return Case(list(shape), sizes, per_node, rates)


def _check_nodes(run: Run, case: Case, home: Any) -> None:
    """That the list is valid."""
    run.true(
        plans.is_whole(home, 1) and len(home) == prod(case.shape),
        "this is not a list with one node for each rank",
        expected=f"{prod(case.shape)} whole numbers",
        measured=describe(home),
    )
    for rank, node in enumerate(home):
        run.true(node in range(len(case.rates)), f"rank {rank}: there is no node {node}")
    for node in range(len(case.rates)):
        run.equal(home.count(node), case.per_node, f"the number of ranks on node {node}")


def _slowest(case: Case, home: list[int]) -> float:
    """The slowest node's time."""
    ranks = {place: rank for rank, place in enumerate(product(*map(range, case.shape)))}
    sent = [0] * len(case.rates)
    for place, rank in ranks.items():
        for axis, count in enumerate(case.shape):
            after = (*place[:axis], (place[axis] + 1) % count, *place[axis + 1 :])
            if home[ranks[after]] != home[rank]:
                sent[home[rank]] += case.sizes[axis]
    return max(size / rate for size, rate in zip(sent, case.rates, strict=True))


def _share(run: Run, case: Case, home: list[int]) -> float:
    """The slowest node's time over that with ranks in order."""
    _check_nodes(run, case, home)
    return _slowest(case, home) / _slowest(case, [r // case.per_node for r in range(len(home))])


@check("exactly `per_node` ranks on every node", points=3, code="E")
def check_nodes(run: Run) -> None:
    """E: hidden meshes; an axis of one place; one node; nodes of one rank."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [Case([2, 1, 3], [5, 7, 9], 3, [50, 60]), Case([4], [5], 4, [50])]
    cases += [Case([2, 2], [3, 4], 1, [50, 50, 50, 50])]
    plans.judged(run, drive, cases, _check_nodes)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_time(run: Run) -> None:
    """S: the mean of the slowest node's time."""
    run.figure = plans.figure(run, drive, "place_ranks", _case, _share)
