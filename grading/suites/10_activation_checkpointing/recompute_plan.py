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
    name="recompute_plan",
    lesson="10_activation_checkpointing",
    title="Open: a graph of tensors under a budget",
    core=False,
    minutes=60,
    order=5,
    open=("of the plan's computing is not done again", 0.0941, 0.78098),
    library=(),
    hints=(
        "Write what makes a tensor with all that it needs, one call in another. Before each "
        "backward make its tensors from nothing, drop each after its last use, and you are valid.",
        "Then keep what you have made until there is no room, and only then drop something: not "
        "what this step needs. A tensor whose uses are all over goes first.",
        "Which one? One that is large, cheap to make again (with all that it needs and is not "
        "there), and not used for long: divide the cost by the bytes and by the time. Try several "
        "powers of the three, and keep the cheapest plan.",
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
            run.fail("this is no list of texts like F3, D3 or B3", measured=describe(text))
    return [(text[0], int(text[1:])) for text in listed]


def _cost(run: Run, case: Case, plan: Any) -> int:
    """What a plan's Fs cost in all, if it is valid."""
    there, cost, left = set[int](), 0, [*range(len(case.costs))]
    for number, (what, node) in enumerate(_steps(run, plan)):
        said = f"step {number}, {what}{node}"
        run.true(node < len(case.costs), f"{said}: there is no node {node}")
        run.true(what != "F" or node not in there, f"{said}: tensor {node} is there already")
        needed = set[int]() if what == "F" else {node}
        needed |= set[int]() if what == "D" else set(case.inputs[node])
        for missing in sorted(needed - there):
            run.fail(f"{said}: tensor {missing} is not there")
        if what == "B":
            turn = left.pop() if left else None
            run.true(node == turn, f"{said}: it is not this node's turn", expected=f"B{turn}")
            continue
        there ^= {node}
        cost += case.costs[node] * (what == "F")
        run.at_most(sum(case.sizes[each] for each in there), case.budget, f"{said}: what is there")
    run.equal(left, [], "the list of nodes without a backward")
    return cost


@check("what a step needs is there, and fits", points=3, code="M")
def check_plan(run: Run) -> None:
    """M: hidden graphs; the least budget; a budget for all; one node."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(3)] + [_graph(draw, 0), _graph(draw, 100)]
    cases.append(Case([3], [7], [[]], 7))
    for case, plan in zip(cases, plans.ask(run, drive, cases), strict=True):
        _cost(run, case, plan)


@check("the cases that everybody has", points=2, code="S")
def check_cost(run: Run) -> None:
    """S: the mean share of what is made for the first time."""
    cases = [_case(plans.fixed(f"recompute_plan {n}")) for n in range(plans.CASES)]
    found = plans.ask(run, drive, cases)
    run.figure = plans.mean(
        [sum(case.costs) / _cost(run, case, plan) for case, plan in zip(cases, found, strict=True)]
    )
