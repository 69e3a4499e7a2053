"""place_experts: every expert somewhere, no GPU overfull; the fullest GPU's load is the figure.

Source: DeepSeek, "Expert Parallelism Load Balancer" (EPLB, 2025), which counts copies in one loop
and packs them in another. The bound is 1.0, all GPUs alike; loads that differ from step to step
keep one placement from reaching it.
"""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: copies of hot experts",
    core=False,
    minutes=40,
    order=8,
    open=("times the mean load on the busiest GPU", 1.7652, 1.0571),
    library=(),
    hints=(
        "There are two questions: how many copies does each expert get, and which copies share a "
        "GPU? Answer the first from the sums over the steps alone.",
        "Hand out the copies one at a time, each to the expert with the largest load per copy. "
        "Then place the copies, the heaviest first, each on the GPU with the least load that has "
        "room and does not yet hold this expert.",
        "Swap two copies on different GPUs if that lowers the busiest GPU's load, averaged over "
        "the steps, until no swap helps. A swap changes only the loads of those two GPUs.",
    ),
)

Case = tuple[list[list[int]], int, int]  # loads, GPUs, slots
STEPS = 4


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The placement of each case."""
    return {"plans": [learner.place_experts([*map(list, c[0])], c[1], c[2]) for c in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """A few hot experts; from step to step a load may change to 0.4 or 1.6 times its usual."""
    gpus = draw(4, 9, 1)[0]
    experts = draw(3, 7, 1)[0] * gpus
    slots = experts // gpus + draw(1, 4, 1)[0]
    usual = [40 + number**3 // 10**4 for number in draw(1, 400, experts)]
    steps = [draw(40, 161, experts) for _ in range(STEPS)]
    loads = [[1 + load * part // 100 for load, part in zip(usual, step, strict=True)]
             for step in steps]  # fmt: skip
    return loads, gpus, slots


def _check_placement(run: Run, case: Case, held: Any) -> None:
    """That the placement is valid."""
    loads, gpus, slots = case
    run.true(
        plans.is_whole(held, 2),
        "this is not a list of experts for each GPU",
        expected=f"{gpus} lists of whole numbers",
        measured=describe(held),
    )
    run.equal(len(held), gpus, "the number of lists, one for each GPU,")
    experts = range(len(loads[0]))
    for gpu, mine in enumerate(held):
        run.at_most(len(mine), slots, f"the number of experts on GPU {gpu}")
        for expert in mine:
            run.true(expert in experts, f"GPU {gpu}: there is no expert {expert}")
            run.true(mine.count(expert) == 1, f"GPU {gpu} holds expert {expert} twice")
    for expert in experts:
        run.true(any(expert in mine for mine in held), f"no GPU holds expert {expert}")


def _fullest(run: Run, case: Case, held: list[list[int]]) -> float:
    """The fullest GPU's load over the mean one, the mean over the steps."""
    _check_placement(run, case, held)
    loads, gpus, _ = case
    counts = [sum(expert in mine for mine in held) for expert in range(len(loads[0]))]
    return plans.mean([
        max(sum(step[e] / counts[e] for e in mine) for mine in held) * gpus / sum(step)
        for step in loads
    ])  # fmt: skip


@check("every expert has a place, and no GPU has too many", points=3, code="E")
def check_placement(run: Run) -> None:
    """E: hidden loads; places for each expert once; one GPU; places for all on every GPU."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(3)]
    cases += [([[5, 9, 2, 40]], 2, 2), ([[3, 3]], 1, 4), ([[7, 1], [1, 7]], 3, 3)]
    plans.judged(run, drive, cases, _check_placement)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_load(run: Run) -> None:
    """S: the mean of the fullest GPU's load."""
    run.figure = plans.figure(run, drive, "place_experts", _case, _fullest)
