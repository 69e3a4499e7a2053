"""interval: incidents out of reports, their mean gap, and Daly's interval from it."""

from __future__ import annotations

import math
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="How often to save, from a failure log",
    core=False,
    minutes=25,
    order=6,
    defines=("incidents", "mtbf", "spread", "interval"),
    library=(),
    hints=(
        "The window begins with the first report of an incident, and later reports do not "
        "prolong it.",
        "Go through the reports and keep one if it comes `window` seconds or more after the last "
        "one that you kept. The first gap begins at the job's start, 0, which is not an incident.",
        "mtbf = last incident / number of incidents. For the standard error: take the gaps of "
        "[0, *times], divide the sum of their squared distances from the mean by k - 1 and by k, "
        "and take the root.",
    ),
)

BY_HAND = [
    (1.0, [100.0, 101.0, 104.0, 300.0, 301.0, 600.0], 10.0),
    (2.0, [50.0, 58.0, 66.0, 74.0, 200.0], 10.0),  # each 8 s after the last: two incidents and one
    (5.0, [40.0, 50.0, 90.0], 10.0),
    (4.0, [700.0, 705.0], 60.0),
    (30.0, [4.0, 8.0, 12.0], 1.0),
    (3.0, [4.0, 50.0, 90.0], 10.0),  # the start is no incident: a report soon after it is one
    (2.0, [0.0, 3.0, 40.0, 200.0], 10.0),
    (30.0, [15.0], 1.0),  # r is 1
    (22.0, [15.0, 30.0], 1.0),  # r is 0.73
]


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Any]) -> dict[str, Any]:
    """All four answers for each log."""
    found = []
    for save, reports, window in cases:
        found.append(
            {
                "incidents": [float(time) for time in learner.incidents(reports, window)],
                "mtbf": float(learner.mtbf(reports, window)),
                "spread": float(learner.spread(reports, window)),
                "interval": float(learner.interval(save, reports, window)),
            }
        )
    return {"found": found}


# --- by the rules --------------------------------------------------------------------------------
def incidents(reports: list[float], window: float, prolonged: bool = False) -> list[float]:
    """First reports; with the window prolonged by each report in it, if asked."""
    found: list[float] = []
    last = -math.inf
    for time in reports:
        if time - last >= window:
            found.append(time)
            last = time
        elif prolonged:
            last = time
    return found


def daly(save: float, mean: float) -> float:
    """Daly's interval."""
    r = save / (2 * mean)
    return mean if r >= 1 else math.sqrt(2 * save * mean) * (1 + math.sqrt(r) / 3 + r / 9) - save


def error(times: list[float]) -> float:
    """Standard error of the mean gap."""
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    if len(gaps) == 1:
        return math.inf
    mean = sum(gaps) / len(gaps)
    return math.sqrt(sum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1) / len(gaps))


def cases(run: Run) -> list[tuple[float, list[float], float]]:
    """By hand, and a log by chance: incidents with a burst of reports each."""
    found = list(BY_HAND)
    for _ in range(3):
        times, now = list[float](), 0.0
        for _ in range(run.number(5, 40)):
            now += run.number(1600, 32000) / 8
            times += [now + float(late) for late in sorted(run.integers(0, 15, 3).tolist())]
        found.append((float(run.number(2, 30)), sorted(set(times)), 20.0))
    return found


def compare(run: Run, key: str) -> None:
    """One of the answers, for all logs."""
    given = cases(run)
    result = run(drive, {"cases": [list(case) for case in given]}, world=2)
    for output in run.each(result.outputs):
        for (save, reports, window), found in zip(given, output["found"], strict=True):
            times = incidents(reports, window)
            mean, all_of = times[-1] / len(times), reports[-1] / len(reports)
            longer = incidents(reports, window, prolonged=True)
            what = f"of reports at {[round(time) for time in reports[:4]]}..., window {window:g}"
            if key == "incidents":
                run.equal(found[key], times, f"the incidents {what}", likely={
                    "the window begins with an incident's first report": longer,
                    "every report counts as an incident": reports,
                })  # fmt: skip
            elif key == "mtbf":
                run.close(found[key], mean, f"the mean time between failures {what}",
                          likely={
                    "every report counts as an incident": all_of,
                    "the first gap begins at the job's start": (times[-1] - times[0])
                    / max(1, len(times) - 1),
                    "this is the mean of the times, not of the gaps": sum(times) / len(times),
                })  # fmt: skip
            elif key == "spread" and len(times) == 1:
                run.equal(found[key], math.inf, f"the spread {what}")
            elif key == "spread":
                k = len(times)
                right = error(times)
                run.close(found[key], right, f"the spread {what}", terms=200, likely={
                    "this is the standard deviation of the gaps, not the standard error of their "
                    "mean":
                        right * math.sqrt(k),
                    "divide the sum of the squares by k - 1": right * math.sqrt((k - 1) / k),
                })  # fmt: skip
            else:
                run.close(found[key], daly(save, mean), f"the interval {what}",
                          likely={
                    "this is Young's interval": math.sqrt(2 * save * mean),
                    "every report counts as an incident": daly(save, all_of),
                    "subtract the cost of a save at the end of Daly's formula":
                        daly(save, mean) + save,
                })  # fmt: skip


@check("which reports are new incidents", points=3, code="E")
@diagnosis("the first report after each window has ended")
def check_incidents(run: Run) -> None:
    """E: bursts, and reports at the end of a window."""
    compare(run, "incidents")


@check("the mean time between failures", points=2, code="E")
@diagnosis("the gaps begin at the job's start")
def check_mtbf(run: Run) -> None:
    """E: the same logs."""
    compare(run, "mtbf")


@check("how far the mtbf may be off", points=2, code="E")
@diagnosis("the standard error of the mean")
def check_spread(run: Run) -> None:
    """E: the same logs; one gap says nothing."""
    compare(run, "spread")


@check("the interval", points=3, code="E")
@diagnosis("Daly's formula with the mtbf of incidents")
def check_interval(run: Run) -> None:
    """E: the same logs; one with a save that takes longer than two mtbf."""
    compare(run, "interval")
