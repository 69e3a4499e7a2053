"""owner_plan: an owner for each matrix, within the elements that may be sent; the load counts.

Source: Graham, "Bounds on Multiprocessing Timing Anomalies" (1969), for loads alone; Shmoys and
Tardos, "An approximation algorithm for the generalized assignment problem" (1993), for loads under
a limit on costs, which is NP-hard. The bound is 1.0: all ranks alike, or the largest matrix alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: owners under a limit on communication",
    core=False,
    minutes=45,
    order=6,
    open=("times the lower bound of the busiest rank's operations", 1.3826, 1.0588),
    library=(),
    hints=(
        "Begin with each matrix on the rank that has most of it: that is valid. Which rank has the "
        "most to do, and which of its matrices costs many operations but has few elements?",
        "Go through the matrices, the most expensive first, and give each to the rank with the "
        "least to do. Count each element that stays where it is as some operations less. Try "
        "several such prices per element, and keep the best plan within the limit.",
        "Improve the plan step by step: move a matrix or swap two, as long as the elements sent "
        "stay within the limit. The largest load alone hardly ever changes, so compare the sum of "
        "the loads' fourth powers.",
    ),
)


class Case(NamedTuple):
    """The function's arguments."""

    shapes: list[tuple[int, int]]
    pieces: list[list[int]]
    limit: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The owners of each case."""
    return {"plans": [learner.owner_plan(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Blocks of equal matrices, thin and square ones, in one row that is cut evenly."""
    ranks = draw(4, 9, 1)[0]
    shapes: list[tuple[int, int]] = []
    while len(shapes) < 6 * ranks:
        side, ratio, count, tall = draw(3, 13, 1) + draw(1, 9, 1) + draw(1, 5, 1) + draw(0, 2, 1)
        shape = (8 * side, 8 * side * ratio)
        shapes += [shape[::-1] if tall else shape] * count
    pieces = _in_a_row([rows * columns for rows, columns in shapes], ranks)
    least = sum(2 * (sum(counts) - max(counts)) for counts in pieces)
    anywhere = 2 * sum(map(sum, pieces)) * (ranks - 1) // ranks  # that owners by lot would cost
    return Case(shapes, pieces, least + (anywhere - least) * draw(8, 31, 1)[0] // 100)


def _in_a_row(sizes: list[int], ranks: int) -> list[list[int]]:
    """How much each rank has of each, if all lie one behind the other and are cut evenly."""
    share, begin, pieces = -(-sum(sizes) // ranks), 0, []
    for size in sizes:
        ends = [min(max(share * i - begin, 0), size) for i in range(ranks + 1)]
        pieces.append([end - first for first, end in zip(ends, ends[1:], strict=False)])
        begin += size
    return pieces


def _check_owners(run: Run, case: Case, owners: Any) -> None:
    """That the list is valid."""
    ranks = len(case.pieces[0])
    run.true(
        plans.is_whole(owners, 1) and len(owners) == len(case.shapes),
        "this is not a list with one owner for each matrix",
        expected=f"{len(case.shapes)} whole numbers",
        measured=describe(owners),
    )
    for n, owner in enumerate(owners):
        run.true(owner in range(ranks), f"matrix {n}: there is no rank {owner}")
    sent = sum(2 * (sum(p) - p[o]) for o, p in zip(owners, case.pieces, strict=True))
    dealt = list(owners) == [n % ranks for n in range(len(owners))]
    run.at_most(
        sent,
        case.limit,
        "the number of elements that all ranks send",
        cause="the matrices are dealt out in turn, regardless of where their pieces are"
        if dealt
        else "the elements that an owner lacks count twice: they are sent to it, and results back",
    )


def _busiest(run: Run, case: Case, owners: list[int]) -> float:
    """The busiest owner's operations over the bound."""
    _check_owners(run, case, owners)
    costs = [4 * r * r * c + 2 * r**3 for r, c in map(sorted, case.shapes)]
    loads = [0] * len(case.pieces[0])
    for owner, cost in zip(owners, costs, strict=True):
        loads[owner] += cost
    return max(loads) / max(sum(costs) / len(loads), *costs)


@check("one owner for each matrix, and no more sent than allowed", points=3, code="E")
def check_owners(run: Run) -> None:
    """E: hidden matrices; one rank; one matrix; no room but at home."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [Case([(8, 4), (2, 3)], [[32], [6]], 0), Case([(4, 6)], [[9, 8, 7]], 30)]
    cases += [Case([(8, 8), (8, 8), (4, 16)], [[64, 0], [40, 24], [0, 64]], 48)]
    plans.judged(run, drive, cases, _check_owners)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_load(run: Run) -> None:
    """S: the mean of the busiest owner's operations, in bounds."""
    run.figure = plans.figure(run, drive, "owner_plan", _case, _busiest)
