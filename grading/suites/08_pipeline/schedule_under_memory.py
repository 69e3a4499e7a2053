"""schedule_under_memory: complete, without a circle, never too much held; the length is the figure.

Source: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), for W where a rank would wait, and
"Pipeline Parallelism with Controllable Memory" (2024) for less of it under a limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from course_lib.schedule import Action, Costs, Schedule, ScheduleError, simulate
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: uneven stages under a limit",
    core=False,
    minutes=60,
    order=9,
    open=("times the lower bound of the schedule's length", 1.2964, 1.0923),
    library=(),
    hints=(
        "Begin with 1F1B: rank r runs some Fs ahead, at most limits[r] - 1 and at most as many as "
        "the rank before it. Where does it wait?",
        "Build the schedule in the order of time, as the ranks would run it: of all actions that "
        "can run next, take the one that can begin first. If several can begin at the same time, "
        "prefer I to F, and run W only where nothing else can begin. F cannot run while limits[r] "
        "micro-batches are held.",
        "Vary the rules and keep the shortest schedule: prefer F to I; let a rank wait up to half "
        "of a W's time before it begins a W; hold one micro-batch less than the limit.",
    ),
)


class Case(NamedTuple):
    """The function's arguments."""

    forward: list[int]
    input: list[int]
    weight: list[int]
    message: int
    limits: list[int]
    micro_batches: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The actions of each case."""
    return {"plans": [learner.schedule_under_memory(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Three to five stages of unequal cost; limits about those of 1F1B."""
    ranks, micro_batches = draw(3, 6, 1)[0], draw(6, 11, 1)[0]
    forward = draw(8, 21, ranks)
    back = [time * draw(80, 131, 1)[0] // 100 for time in forward]
    weight = [time * draw(50, 101, 1)[0] // 100 for time in forward]
    limits = [max(2, ranks - rank - 1 + draw(0, 3, 1)[0]) for rank in range(ranks)]
    return Case(forward, back, weight, draw(0, 6, 1)[0], limits, micro_batches)


def _length(run: Run, case: Case, lines: Any) -> float:
    """The schedule's length, in bounds, if it is valid."""
    ranks = len(case.forward)
    run.true(
        isinstance(lines, (list, tuple))
        and len(lines) == ranks
        and all(isinstance(line, (list, tuple)) and line for line in lines)
        and all(isinstance(text, str) for line in lines for text in line),
        "this is not a list of texts for each rank",
        expected=f"{ranks} lists",
        measured=describe(lines),
    )
    try:
        actions = [[Action.parse(text) for text in line] for line in lines]
        for rank, line in enumerate(actions):
            for action in line:
                run.true(action.stage == rank, f"{action} on rank {rank}: rank r runs stage r")
        schedule = Schedule.of("from the exercise", actions)
        run.equal(schedule.micro_batches, case.micro_batches, "the number of micro-batches")
        costs = zip(case.forward, case.input, case.weight, strict=True)
        found = simulate(schedule, [Costs(*cost, case.message) for cost in costs])
    except ScheduleError as error:
        run.fail("this schedule cannot run", measured=error.found, cause=error.why)
    for rank, limit in enumerate(case.limits):
        what = "the number of micro-batches whose activations are held"
        run.at_most(found.in_flight(rank), limit, what, rank=rank)
    return found.makespan / _bound(case)


def _bound(case: Case) -> int:
    """No schedule is shorter.

    Rank r begins when the first micro-batch arrives, and has all its work. Between its first F and
    its first I the micro-batch goes to the last rank and back; meanwhile it can run limits[r] Fs.
    """
    last = len(case.forward) - 1
    lengths = []
    for r in range(last + 1):
        arrives = sum(case.forward[:r]) + r * case.message
        work = case.micro_batches * (case.forward[r] + case.input[r] + case.weight[r])
        away = sum(case.forward[r:]) + sum(case.input[r + 1 :]) + 2 * case.message * (last - r)
        lengths.append(arrives + work + max(0, away - case.limits[r] * case.forward[r]))
    return max(lengths)


@check("complete, without a deadlock, and within the limits", points=3, code="S")
def check_schedule(run: Run) -> None:
    """S: hidden pipelines; one stage; one micro-batch; room for one micro-batch on each rank."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [
        Case([3], [2], [1], 0, [2], 4),
        Case([3, 4, 3], [2, 4, 2], [1, 1, 1], 1, [3, 2, 1], 1),
    ]
    cases += [Case([5, 6], [5, 7], [4, 4], 2, [1, 1], 5)]
    plans.judged(run, drive, cases, _length)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_length(run: Run) -> None:
    """S: the mean of the schedule's length."""
    run.figure = plans.figure(run, drive, "schedule_under_memory", _case, _length)
