"""zero_bubble: backward in two halves, (p-1)(tF+tI-tW) of waiting, p in memory."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.schedule import Costs
from grading.references.pipeline import schedule_texts
from grading.references.pipeline.schedule_texts import Plan, Sizes

EXERCISE = Exercise(
    title="Weights' gradients where a rank would wait",
    core=False,
    minutes=30,
    order=6,
    library=(),
    hints=(
        "Begin with 1F1B's order and write I instead of B: warm-up forwards, then for each k a "
        "forward (if one is left) and I number k. Where may the Ws go without making the previous "
        "rank wait any longer?",
        "One loop over k from 0 to m - 1: the forward number warm + k if it is below m, I number "
        "k, and W number k - rank if that is not negative. Rank 0 has no W left after the loop.",
        'After the loop, `[f"{rank}W{k}" for k in range(max(m - rank, 0), m)]`: the last `rank` '
        "of them, or all m if there are fewer.",
    ),
)

TIMES = (Costs(1, 1, 1), Costs(2, 2, 1), Costs(3, 2, 2), Costs(2, 5, 1))  # W is never the longest
FEW = [{"p": 2, "m": 1}, {"p": 4, "m": 2}, {"p": 5, "m": 4}]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Sizes]) -> dict[str, Any]:
    """The lists of this rank's share of the pipelines' ranks."""
    return {"plans": schedule_texts.ask(learner.zero_bubble, group, cases)}


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> list[Sizes]:
    cases = [{"p": 2, "m": 3}, {"p": 3, "m": 4}, {"p": 1, "m": 2}, {"p": 4, "m": 4}]
    return [*cases, {"p": 1, "m": 1}, {"p": run.number(5, 8), "m": run.number(8, 15)}]


def _plans(run: Run, cases: list[Sizes]) -> list[Plan]:
    return schedule_texts.read(run, drive, cases, "FIW", lambda rank, sizes: [rank])


def _why(plan: Plan) -> str:
    """On which rank the Ws come earlier or later than in ZB-H1."""
    m = plan.sizes["m"]
    for rank, line in enumerate(plan.schedule.actions):
        kinds = "".join(action.kind for action in line)
        found, wanted = kinds[: kinds.index("W")].count("I"), min(m, rank + 1)
        if found != wanted:
            when = "later" if found > wanted else "earlier"
            return (
                f"rank {rank} runs its first W after {found} of its Is, {when} than necessary: "
                f"here it is {wanted}"
            )
    for rank, line in enumerate(plan.schedule.actions):
        kinds = "".join(action.kind for action in line)
        found, wanted = kinds.index("I"), min(m, len(plan.schedule.actions) - rank)
        if found != wanted:
            return f"rank {rank} runs {found} forwards before its first I; 1F1B runs {wanted}"
    return "the beginning is right; after it, alternate a forward, an I and a W"


@check("each micro-batch goes through each stage with one F, one I and one W", points=2, code="S")
@diagnosis("m of each letter on every rank; a W comes after its I")
def check_complete(run: Run) -> None:
    """S: one to seven ranks."""
    _plans(run, _cases(run))


@check("no deadlock: ranks never wait for each other in a circle", points=2, code="H")
def check_ends(run: Run) -> None:
    """H: on paper; also for m < p."""
    for plan in _plans(run, _cases(run)) + _plans(run, FEW):
        plan.simulate()


@check("a rank waits (p-1)(tF+tI-tW) at most", points=3, code="S")
def check_time(run: Run) -> None:
    """S: makespan under several ratios, in none of which W takes longer than F or than I."""
    for plan in _plans(run, _cases(run)):
        p, m = plan.sizes["p"], plan.sizes["m"]
        for costs in TIMES:
            f, i, w = costs.forward, costs.input, costs.weight
            limit = m * (f + i + w) + (p - 1) * (f + i - w)
            plan.ends_by(costs, limit, "m(tF+tI+tW) + (p-1)(tF+tI-tW)", _why(plan))


@check("no rank holds more than p micro-batches", points=3, code="M")
def check_memory(run: Run) -> None:
    """M: from the beginning of F to the end of W; also for m < p."""
    for plan in _plans(run, _cases(run)) + _plans(run, FEW):
        p = plan.sizes["p"]
        plan.holds([p] * p, "p", "micro-batches", _why(plan))
