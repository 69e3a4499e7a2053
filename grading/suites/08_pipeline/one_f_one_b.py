"""one_f_one_b: complete, without a circle, as fast as GPipe, and p - rank in memory."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.schedule import Costs
from grading.references.pipeline import schedule_texts
from grading.references.pipeline.schedule_texts import Plan, Sizes

EXERCISE = Exercise(
    title="One forward, one backward",
    core=True,
    minutes=20,
    order=3,
    library=(),
    hints=(
        "Write down the three parts for p = 3, m = 4, rank by rank: forwards alone, pairs of a "
        "forward and a backward, backwards alone. The last rank has no first part, and each rank "
        "has one forward more in it than the rank after it.",
        "Let `warm = min(m, p - 1 - rank)`. The first part has `warm` forwards, so the pairs "
        "begin with forward number `warm` and backward number 0, and m - warm pairs use up all "
        "forwards.",
        '`plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]` for k in range(m - warm), and at the end '
        "the backwards from m - warm to m - 1.",
    ),
)

TIMES = (Costs(1, 1, 1), Costs(2, 1, 1), Costs(5, 1, 1), Costs(1, 2, 1))
FEW = [{"p": 2, "m": 1}, {"p": 3, "m": 2}, {"p": 4, "m": 1}, {"p": 5, "m": 3}]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Sizes]) -> dict[str, Any]:
    """The lists of this rank's share of the pipelines' ranks."""
    return {"plans": schedule_texts.ask(learner.one_f_one_b, group, cases)}


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> list[Sizes]:
    cases = [{"p": 2, "m": 3}, {"p": 3, "m": 4}, {"p": 1, "m": 3}, {"p": 4, "m": 4}]
    return [*cases, {"p": 1, "m": 1}, {"p": run.number(5, 8), "m": run.number(8, 15)}]


def _plans(run: Run, cases: list[Sizes]) -> list[Plan]:
    return schedule_texts.read(run, drive, cases, "FB", lambda rank, sizes: [rank])


def _why(plan: Plan) -> str:
    """What is odd about the forwards before each rank's first backward."""
    p, m = plan.sizes["p"], plan.sizes["m"]
    first = ["".join(action.kind for action in line).index("B") for line in plan.schedule.actions]
    right = [min(m, p - rank) for rank in range(p)]
    if set(first) == {m} and m > 1:
        return "all forwards come before the first backward: this is GPipe, which holds m"
    for rank, (found, wanted) in enumerate(zip(first, right, strict=True)):
        if found != wanted:
            many = "holds more than it must" if found > wanted else "lets the ranks behind it wait"
            return (
                f"rank {rank} runs {found} forwards before its first backward and so {many}: "
                f"p-1-rank = {p - 1 - rank} of them, then the first pair"
            )
    for rank, line in enumerate(plan.schedule.actions):
        forwards, backwards = ([a.micro for a in line if a.kind == kind] for kind in "FB")
        if forwards != backwards:
            return (
                f"rank {rank} runs its backwards in a different order from its forwards: the "
                "micro-batch that went out first is back first"
            )
    return "the warm-up is right; after it, alternate a forward and a backward: F, B, F, B, ..."


def _check_times(plan: Plan) -> None:
    p, m = plan.sizes["p"], plan.sizes["m"]
    for costs in TIMES:
        limit = (m + p - 1) * (costs.forward + costs.input + costs.weight)
        plan.ends_by(costs, limit, "(m+p-1)(tF+tB)", _why(plan))


def _check_memory(plan: Plan) -> None:
    p, m = plan.sizes["p"], plan.sizes["m"]
    limits = [min(m, p - rank) for rank in range(p)]
    plan.holds(limits, "min(m, p-rank)", "micro-batches", _why(plan))


@check(
    "each micro-batch goes through each stage once forward and once backward", points=2, code="S"
)
@diagnosis("a forward, and later a backward, for every micro-batch from 0 to m-1")
def check_complete(run: Run) -> None:
    """S: one to seven ranks."""
    _plans(run, _cases(run))


@check("no deadlock: ranks never wait for each other in a circle", points=2, code="H")
def check_ends(run: Run) -> None:
    """H: on paper; a deadlock names the action that each rank waits for."""
    for plan in _plans(run, _cases(run)):
        plan.simulate()


@check("the schedule takes (m+p-1)(tF+tB)", points=3, code="S")
def check_time(run: Run) -> None:
    """S: makespan under several ratios of forward and backward."""
    for plan in _plans(run, _cases(run)):
        _check_times(plan)


@check("rank r holds at most p-r micro-batches", points=3, code="M")
def check_memory(run: Run) -> None:
    """M: forwards whose backward has not ended."""
    for plan in _plans(run, _cases(run)):
        _check_memory(plan)


@check("the same with fewer micro-batches than ranks", points=2, code="S")
@diagnosis("the warm-up has p-1-rank forwards, or m if there are no more")
def check_few(run: Run) -> None:
    """S: m < p."""
    for plan in _plans(run, FEW):
        _check_times(plan)
        _check_memory(plan)
