"""recompute_plan: each step has what it needs and fits; what is made again is the figure.

Source: Jain et al., "Checkmate" (2019), which finds such plans by integer programming; Kirisame et
al., "Dynamic Tensor Rematerialization" (2020), for a rule. The bound is 1: nothing is made again.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: a graph of tensors under a budget",
    core=False,
    minutes=60,
    order=5,
    open=("of the plan's computing is needed even without a budget", 0.0941, 0.78098),
    library=(),
    hints=(
        "Write a recursive function that computes a tensor after all that it needs. A plan that "
        "computes everything from nothing before each backward, and drops each tensor after its "
        "last use, is valid.",
        "Then keep the tensors that you have computed until there is no room, and only then drop "
        "one that this step does not need. Tensors that nothing will use again go first.",
        "Which tensor should go? One that is large, cheap to compute again (together with its "
        "inputs that are not in memory), and not needed for a long time: divide the cost by the "
        "bytes and by the time. Try several powers of the three, and keep the cheapest plan.",
    ),
)

ACTION = re.compile("([FDB])(0|[1-9][0-9]{0,8})")


class Case(NamedTuple):
    """The function's arguments."""

    costs: list[int]
    sizes: list[int]
    inputs: list[list[int]]
    budget: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The plan of each case."""
    return {"plans": [learner.recompute_plan(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _graph(draw: plans.Draw, share: int) -> Case:
    """A chain with shortcuts; the budget is the least and `share` percent of what is above it."""
    count = draw(12, 25, 1)[0]
    costs, sizes = draw(5, 60, count), draw(5, 60, count)
    inputs: list[list[int]] = [[], *([node - 1] for node in range(1, count))]
    for node in range(3, count):
        if draw(0, 3, 1)[0] == 0:
            inputs[node].insert(0, node - 2 - draw(0, min(node - 1, 4), 1)[0])
    enough = max(_widest(sizes, inputs, node) for node in range(count))
    return Case(costs, sizes, inputs, enough + (sum(sizes) - enough) * share // 100)


def _case(draw: plans.Draw) -> Case:
    return _graph(draw, draw(10, 60, 1)[0])


def _widest(sizes: list[int], inputs: list[list[int]], node: int) -> int:
    """The most bytes that are there while a node's backward is prepared from nothing."""
    needed = {node, *inputs[node]}
    before = set(needed)
    for each in range(node, -1, -1):
        before |= set(inputs[each]) if each in before else set()
    most, there = 0, set[int]()
    for each in sorted(before):
        there.add(each)
        most = max(most, sum(sizes[other] for other in there))
        later = needed.union(*(inputs[other] for other in before if other > each))
        there &= later
    return most


def _steps(run: Run, plan: Any) -> list[tuple[str, int]]:
    """The plan's steps: letter and node."""
    listed = list(plan) if isinstance(plan, (list, tuple)) else [plan]
    for text in listed:
        if not (isinstance(text, str) and ACTION.fullmatch(text)):
            run.fail("this is not a list of texts like F3, D3 or B3", measured=describe(text))
    return [(text[0], int(text[1:])) for text in listed]


def _share(run: Run, case: Case, plan: Any) -> float:
    """The share of what is made for the first time, if the plan is valid."""
    there, cost, left = set[int](), 0, [*range(len(case.costs))]
    for number, (what, node) in enumerate(_steps(run, plan)):
        said = f"step {number}, {what}{node}"
        run.true(node < len(case.costs), f"{said}: there is no node {node}")
        run.true(what != "F" or node not in there, f"{said}: tensor {node} is in memory already")
        needed = set[int]() if what == "F" else {node}
        needed |= set[int]() if what == "D" else set(case.inputs[node])
        for missing in sorted(needed - there):
            run.fail(f"{said}: tensor {missing} is not in memory")
        if what == "B":
            turn = left.pop() if left else None
            run.true(node == turn, f"{said}: it is not this node's turn", expected=f"B{turn}")
            continue
        there ^= {node}
        cost += case.costs[node] * (what == "F")
        size = sum(case.sizes[each] for each in there)
        run.at_most(size, case.budget, f"{said}: the number of bytes in memory")
    run.equal(left, [], "the list of nodes without a backward")
    return sum(case.costs) / cost


@check("each text has what it needs, and memory stays within the budget", points=3, code="M")
def check_plan(run: Run) -> None:
    """M: hidden graphs; the least budget; a budget for all; one node."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(3)] + [_graph(draw, 0), _graph(draw, 100)]
    cases.append(Case([3], [7], [[]], 7))
    plans.judged(run, drive, cases, _share)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_cost(run: Run) -> None:
    """S: the mean share of what is made for the first time."""
    run.figure = plans.figure(run, drive, "recompute_plan", _case, _share)
