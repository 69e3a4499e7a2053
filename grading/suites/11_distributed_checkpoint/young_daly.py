"""young_daly: the interval's formulas, the lost share, and a replay of hidden failures."""

from __future__ import annotations

import copy
import math
from collections import deque
from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="How often to save a checkpoint",
    core=False,
    minutes=25,
    order=5,
    defines=("job_mtbf", "young", "daly", "lost_share", "elapsed"),
    library=(),
    hints=(
        "The formulas are in the task. For the share: how long does a restart take on average, "
        "including its own failures, and how many restarts does an interval have? For the "
        "replay: what must you remember between two pieces of work?",
        "An interval takes mtbf · (e^(a/mtbf) - 1), with a = interval + cost, and has "
        "e^(a/mtbf) - 1 restarts, of mtbf · (e^(restart/mtbf) - 1) each. In the replay look at one "
        "attempt at a time: restart if there was a failure, a piece of work, the checkpoint.",
        "An attempt ends at `end = now + starting + piece + cost`. If the next failure is before "
        "that: `now, starting = failure, restart`, and on to the failure after it. Otherwise "
        "`now, starting, saved = end, 0.0, saved + piece`, until all work is saved.",
    ),
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
# Daly's figures 3 to 5: mtbf and cost, and the interval printed there, all in minutes.
FIGURES = ((24 * 60.0, 5.0, 117.0), (6 * 60.0, 5.0, 57.0), (15.0, 5.0, 9.1))
# Jobs with random failures: the work in mean times between them, and how near chance must come.
WORK, NEAR = 4000, 0.05  # the worst of 36 such jobs was 0.014 off
UNIT = 2**20  # whole numbers to a mean time between failures, so that sums are exact


class Job(NamedTuple):
    """One job whose failures are given; all times are whole numbers, which float64 adds exactly."""

    work: float
    interval: float
    cost: float
    restart: float
    failures: list[float]


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, nodes: list[Any], costs: list[Any], plans: list[Any]
) -> dict[str, Any]:
    """The formulas for all cases."""
    return {
        "job_mtbf": [learner.job_mtbf(*case) for case in nodes],
        "young": [learner.young(*case) for case in costs],
        "daly": [learner.daly(*case) for case in costs],
        "lost_share": [learner.lost_share(*plan) for plan in plans],
    }


def drive_replay(learner: Any, group: Any, jobs: list[list[Any]]) -> dict[str, Any]:
    """How long each job takes."""
    before = copy.deepcopy(jobs)
    return {"elapsed": [learner.elapsed(*job) for job in jobs], "same": jobs == before}


# --- what it must bring back ---------------------------------------------------------------------
class Slip(NamedTuple):
    """What can go wrong with a replay; as it is, nothing does."""

    keeps: bool = False  # work that was not saved is not lost
    saved: bool = False  # a checkpoint that is being written when a failure comes is complete
    once: bool = False  # a failure during a restart changes nothing
    free: bool = False  # nothing is saved after the last work
    full: bool = False  # the last piece is as long as the others
    early: bool = False  # a failure at the moment of completion comes before it
    instant: bool = False  # a restart takes no time


RIGHT = Slip()


def replay(job: Job, slip: Slip = RIGHT) -> float:
    """How long a job takes: one attempt at a piece after the other."""
    now = saved = starting = 0.0
    failures = deque(job.failures)
    while saved < job.work:
        piece = job.interval if slip.full else min(job.interval, job.work - saved)
        last = slip.free and saved + piece >= job.work
        begin = now + starting
        end = begin + piece + (0.0 if last else job.cost)
        while slip.once and failures and failures[0] < begin and starting:
            failures.popleft()
        if not failures or failures[0] > end or (failures[0] == end and not slip.early):
            now, starting, saved = end, 0.0, saved + piece
            continue
        failure = failures.popleft()
        if slip.keeps:
            saved += min(max(failure - begin, 0.0), piece)
        elif slip.saved and failure >= begin + piece:
            saved += piece
        now, starting = failure, 0.0 if slip.instant else job.restart
    return now


def best_daly(cost: float, mtbf: float) -> float:
    """Daly's interval."""
    r = cost / (2 * mtbf)
    return mtbf if r >= 1 else math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost


def share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """What is lost on average: Daly's equation 20."""
    each = math.exp(restart / mtbf) * mtbf * math.expm1((interval + cost) / mtbf)
    return 1 - interval / each


def likely_daly(cost: float, mtbf: float) -> dict[str, float]:
    """Known wrong answers for Daly's interval."""
    r, first = cost / (2 * mtbf), math.sqrt(2 * cost * mtbf)
    series = first * (1 + math.sqrt(r) / 3 + r / 9)
    known = {
        "this is Young's interval": first,
        "the cost is not subtracted at the end": series,
        "the term r/9 is missing": first * (1 + math.sqrt(r) / 3) - cost,
        "r is the cost divided by twice the mtbf":
            first * (1 + math.sqrt(2 * r) / 3 + 2 * r / 9) - cost,
        "at such a cost the interval is the mtbf": series - cost,
    }  # fmt: skip
    return known if r >= 1 else {why: known[why] for why in list(known)[:-1]}


def likely_share(interval: float, cost: float, restart: float, mtbf: float) -> dict[str, float]:
    """Known wrong answers for the lost share."""
    a = interval + cost
    failures, each = math.expm1(a / mtbf), math.exp(restart / mtbf) * mtbf * math.expm1(a / mtbf)
    return {
        "the time of checkpoints counts as lost too: only the interval is work": 1 - a / each,
        "divide by all the time, not by the work alone": each / interval - 1,
        "restarts fail as well": 1 - interval / (failures * (mtbf + restart)),
        "the restarts are missing": 1 - interval / (failures * mtbf),
        "this counts one restart for each interval, whether it failed or not":
            1 - interval / (failures * mtbf + restart),
        "the checkpoint is part of what starts over":
            1 - interval / (math.expm1(interval / mtbf) * mtbf * math.exp(restart / mtbf) + cost),
        "this is the first-order approximation, which holds only if failures are rare":
            cost / interval + a / (2 * mtbf) + restart / mtbf,
        "this is the share that is work": interval / each,
    }  # fmt: skip


def number(run: Run, found: Any, right: float, what: str, likely: dict[str, float]) -> None:
    """That a number is right, up to rounding, relatively."""
    real = isinstance(found, (int, float)) and not isinstance(found, bool)
    cause = "nothing is returned" if found is None else ""
    run.true(real, f"{what} is not a number", measured=repr(found), cause=cause)
    if not math.isclose(found, right, rel_tol=1e-9):
        near = (why for why, other in likely.items() if math.isclose(found, other, rel_tol=1e-6))
        run.fail(
            f"{what} is not what it should be",
            expected=f"{right:.8g}",
            measured=f"{found:.8g}",
            cause=next(near, ""),
        )


def formulas(run: Run) -> tuple[dict[str, list[Any]], Any]:
    """Published and hidden cases, rare failures and frequent ones, and their run."""
    costs = [(cost, mtbf) for mtbf, cost, _ in FIGURES]
    costs += [(MINUTE, 54 * DAY / 419), (2.0, 1.0), (7.0, 2.0), (1.9, 1.0)]
    costs += [(float(run.number(10, 900)), run.number(2, 90) * HOUR) for _ in range(4)]
    nodes = [(264 * DAY, 2048), (float(run.number(100, 900)) * DAY, run.number(3, 5000)), (7.0, 1)]
    plans = []
    for cost, mtbf in costs:
        plans += [
            (factor * best_daly(cost, mtbf), cost, run.number(1, 40) * mtbf / 80, mtbf)
            for factor in (0.4, 1.0, 2.5)
        ]
    given: dict[str, list[Any]] = {"nodes": nodes, "costs": costs, "plans": plans}
    return given, run(drive, given).outputs[0]


@check("the interval: Young's, Daly's, and a job's mtbf", points=5, code="E")
@diagnosis("compare with the formula, term by term")
def check_interval(run: Run) -> None:
    """E: Daly's own figures, Llama 3's failures, hidden numbers; costs above twice the mtbf."""
    given, found = formulas(run)
    for (mtbf, count), value in zip(given["nodes"], found["job_mtbf"], strict=True):
        number(
            run,
            value,
            mtbf / count,
            f"the mtbf of {count} nodes of {mtbf:g} each",
            {"more nodes fail more often, not less": mtbf * count},
        )
    for (cost, mtbf), first, second in zip(
        given["costs"], found["young"], found["daly"], strict=True
    ):
        what = f"interval for a cost of {cost:g} and an mtbf of {mtbf:g}"
        number(
            run,
            first,
            math.sqrt(2 * cost * mtbf),
            f"Young's {what}",
            {
                "the 2 is missing": math.sqrt(cost * mtbf),
                "the 2 belongs under the root": 2 * math.sqrt(cost * mtbf),
                "Young's interval does not contain the cost": math.sqrt(2 * cost * mtbf) - cost,
            },
        )
        number(run, second, best_daly(cost, mtbf), f"Daly's {what}", likely_daly(cost, mtbf))
    for (*_, printed), value in zip(FIGURES, found["daly"], strict=False):
        run.true(
            abs(value - printed) <= 0.5, "Daly's interval differs from the figures in his paper"
        )


@check("the lost share", points=4, code="E")
@diagnosis("1 - interval / time, the time with restarts and their failures")
def check_share(run: Run) -> None:
    """E: against the formula, at intervals that are too short, the best and too long."""
    given, found = formulas(run)
    for plan, value in zip(given["plans"], found["lost_share"], strict=True):
        what = "the lost share for interval {:.4g}, cost {:.4g}, restart {:.4g} and mtbf {:.4g}"
        number(run, value, share(*plan), what.format(*plan), likely_share(*plan))


def jobs_by_hand(run: Run) -> list[Job]:
    """Small jobs in which each rule matters, and hidden ones with many failures."""
    jobs = [
        Job(100.0, 30.0, 5.0, 7.0, failures)
        for failures in (
            [],
            [50.0],
            [0.0],
            [33.0],
            [35.0],
            [50.0, 53.0, 59.0],
            [70.0, 77.0],
            [1.0, 2.0, 3.0, 200.0],
            [118.0],
            [115.0],
            [120.0],
            [500.0],
            [36.0, 43.0, 78.0],
        )
    ]
    jobs += [Job(20.0, 50.0, 3.0, 4.0, [22.0]), Job(60.0, 30.0, 5.0, 7.0, [65.0])]
    for _ in range(6):
        times = run.integers(1, 4000, 60).unique().double().tolist()
        jobs.append(
            Job(
                run.number(900, 2000) * 1.0,
                run.number(20, 60) * 1.0,
                run.number(2, 12) * 1.0,
                run.number(3, 30) * 1.0,
                times,
            )
        )
    return jobs


def jobs_by_chance(run: Run) -> list[Job]:
    """Long jobs whose failures come at random, one a unit of time, with hidden settings."""
    jobs = []
    for interval, cost, restart in ((0.1, 0.02, 0.05), (0.6, 0.15, 0.3), (1.1, 0.05, 0.02)):
        gaps = -((run.integers(0, 2**40, 6 * WORK).double() + 0.5) / 2**40).log()
        times = (gaps.cumsum(0) * UNIT).round().tolist()
        work, *rest = (float(round(x * UNIT)) for x in (WORK, interval, cost, restart))
        jobs.append(Job(work, rest[0], rest[1], rest[2], times))
    return jobs


def replays(run: Run) -> tuple[list[Job], list[Job], list[Any]]:
    """All jobs, and how long the learner says that they take."""
    by_hand, by_chance = jobs_by_hand(run), jobs_by_chance(run)
    found = run(drive_replay, {"jobs": [list(job) for job in by_hand + by_chance]})
    run.true(found.outputs[0]["same"], "elapsed() has changed the list of failures")
    return by_hand, by_chance, found.outputs[0]["elapsed"]


@check("a job's time with given failures", points=5, code="S")
@diagnosis("go from attempt to attempt: restart, piece of work, checkpoint")
def check_replay(run: Run) -> None:
    """S: failures while working, saving and restarting, and at the very end of each."""
    by_hand, _, found = replays(run)
    slips = {
        "a checkpoint that a failure interrupts is not complete": Slip(saved=True),
        "work that was not saved is lost": Slip(keeps=True),
        "a failure during a restart begins it again": Slip(once=True),
        "the last work must be saved too": Slip(free=True),
        "the last piece is only what is left": Slip(full=True),
        "at the moment at which it is complete, a checkpoint is complete": Slip(early=True),
        "a restart takes time": Slip(instant=True),
    }
    wrong = {why: [replay(job, slip) for job in by_hand] for why, slip in slips.items()}
    for place, (job, value) in enumerate(zip(by_hand, found, strict=False)):
        times = ", ".join(f"{time:g}" for time in job.failures[:4])
        what = (
            f"the time of {job.work:g} of work with interval {job.interval:g}, cost "
            f"{job.cost:g}, restart {job.restart:g} and failures at [{times}...]"
        )
        number(run, value, replay(job), what, {why: all_of[place] for why, all_of in wrong.items()})


@check("random failures agree with the lost share", points=2, code="E")
@diagnosis("the replay of random failures and the formula contradict each other")
def check_chance(run: Run) -> None:
    """E: thousands of random failures, replayed by the learner; their formula says what is lost."""
    _, by_chance, found = replays(run)
    plans = [[*job[1:4], float(UNIT)] for job in by_chance]
    told = run(drive, {"nodes": [], "costs": [], "plans": plans}).outputs[0]["lost_share"]
    for job, value, said in zip(by_chance, found[-len(by_chance) :], told, strict=True):
        number(run, value, replay(job), "the time of a job with random failures", {})
        measured = 1 - job.work / value
        run.true(
            abs(measured - said) <= NEAR * said,
            "the lost share does not match the replay",
            expected=f"{measured:.4g}, in {value / UNIT:.0f} mean times between failures",
            measured=f"{said:.4g}",
        )
