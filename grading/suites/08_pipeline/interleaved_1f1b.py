"""interleaved_1f1b: 1/v of the bubble, with chunks in rounds of p micro-batches."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.schedule import Costs
from grading.references.pipeline import schedule_texts
from grading.references.pipeline.schedule_texts import Plan, Sizes

EXERCISE = Exercise(
    title="Several chunks on each rank",
    core=False,
    minutes=40,
    order=5,
    library=(),
    hints=(
        "First write the list of all forwards of a rank, as if there were no backwards; it is the "
        "same for all ranks except for the stages' numbers. Then write the list of all backwards. "
        "The schedule merges the two as in 1F1B.",
        "The k-th forward: `turn, place = divmod(k, p * v)`; its chunk is c = place // p, its "
        "micro-batch turn·p + place % p. Chunk c of rank r is stage c·p + r. The k-th backward is "
        "of chunk v - 1 - c.",
        "warm = p - 1 - rank for v = 1, else 2·(p - 1 - rank) + (v - 1)·p, and never more than "
        "m·v. Then come forwards[:warm], pairs of forwards[warm:] and backwards, and the "
        "backwards that are left: backwards[m * v - warm :].",
    ),
)

TIMES = (Costs(1, 1, 1), Costs(2, 1, 1), Costs(5, 1, 1))


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Sizes]) -> dict[str, Any]:
    """The lists of this rank's share of the pipelines' ranks."""
    return {"plans": schedule_texts.ask(learner.interleaved_1f1b, group, cases)}


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> list[Sizes]:
    sizes = [(2, 4, 2), (3, 6, 2), (2, 2, 3), (1, 3, 2), (1, 1, 1), (3, 3, 1), (4, 4, 2)]
    sizes += [(4, 4 * run.number(2, 4), run.number(2, 5)), (5, 15, 2)]
    return [{"p": p, "m": m, "v": v} for p, m, v in sizes]


def _stages(rank: int, sizes: Sizes) -> list[int]:
    return [chunk * sizes["p"] + rank for chunk in range(sizes["v"])]


def _plans(run: Run) -> list[Plan]:
    return schedule_texts.read(run, drive, _cases(run), "FB", _stages)


def _why(plan: Plan) -> str:
    """Whether a rank has too few or too many forwards before its first backward."""
    p, m, v = plan.sizes.values()
    for rank, line in enumerate(plan.schedule.actions):
        warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
        wanted = min(m * v, warm + 1)
        found = "".join(action.kind for action in line).index("B")
        if found != wanted:
            return (
                f"rank {rank} runs {found} forwards before its first backward; in Megatron's "
                f"order it is {wanted}, the one of the first pair counted"
            )
    return (
        "the warm-up is as long as Megatron's; check the order of the chunks: p micro-batches go "
        "through one, then the same p through the next"
    )


@check(
    "each micro-batch goes through each of the v·p stages once forward and once backward",
    points=2,
    code="S",
)
@diagnosis("each rank runs m·v forwards: every micro-batch in each of its chunks")
def check_complete(run: Run) -> None:
    """S: one to five ranks, one to four chunks."""
    _plans(run)


@check("no deadlock: ranks never wait for each other in a circle", points=2, code="H")
def check_ends(run: Run) -> None:
    """H: on paper."""
    for plan in _plans(run):
        plan.simulate()


@check("the schedule takes (v·m + p-1)(tF+tB)", points=3, code="S")
def check_time(run: Run) -> None:
    """S: makespan under several ratios of forward and backward."""
    for plan in _plans(run):
        p, m, v = plan.sizes.values()
        for costs in TIMES:
            limit = (v * m + p - 1) * (costs.forward + costs.input + costs.weight)
            plan.ends_by(costs, limit, "(v·m + p-1)(tF+tB)", _why(plan))


@check("rank r holds at most (v-1)p + 2(p-r) - 1 forwards of a chunk", points=2, code="M")
def check_memory(run: Run) -> None:
    """M: forwards whose backward has not ended."""
    for plan in _plans(run):
        p, m, v = plan.sizes.values()
        limits = [
            min(m, p - rank) if v == 1 else min(m * v, (v - 1) * p + 2 * (p - rank) - 1)
            for rank in range(p)
        ]
        formula = "min(m, p-rank)" if v == 1 else "(v-1)p + 2(p-rank) - 1"
        plan.holds(limits, formula, "forwards (of all chunks)", _why(plan))
