"""interval: how often to save, computed from the log of a job's failures.

Notebook 17. Lesson 11 has the formulas for the interval; here you apply them to a log. The log
lists when ranks reported failures, in seconds since the job's start, in ascending order. It ends
with the last failure.

- One incident causes many reports: a node that dies takes several ranks with it, and their
  neighbours report time-outs. All reports less than `window` seconds after an incident's *first*
  report belong to that incident.
- `incidents(reports, window)` returns the time of each incident's first report.
- `mtbf(reports, window)` returns the mean time between incidents: the gaps run from the job's start
  at 0 to the last incident.
- `spread(reports, window)` says how far the mtbf may be off, because a log is only one sample. It
  returns the standard error of the mean of the k gaps: their standard deviation (divide by k - 1)
  divided by √k. If k is 1, it returns infinity.
- `interval(save, reports, window)` returns the work between two checkpoints that Daly's formula
  gives. With r = save / (2 · mtbf), this is √(2 · save · mtbf) · (1 + √r/3 + r/9) - save if r is
  less than 1, and the mtbf itself otherwise.
"""

import math
from collections.abc import Sequence


def incidents(reports: Sequence[float], window: float) -> list[float]:
    """Returns the time of each incident's first report."""
    # BEGIN SOLUTION: incidents
    found: list[float] = []
    for time in reports:
        if not found or time - found[-1] >= window:
            found.append(time)
    return found
    # END SOLUTION


def mtbf(reports: Sequence[float], window: float) -> float:
    """Returns the mean number of seconds between incidents."""
    # BEGIN SOLUTION: mtbf
    times = incidents(reports, window)
    return times[-1] / len(times)
    # END SOLUTION


def spread(reports: Sequence[float], window: float) -> float:
    """Returns the standard error of the mean gap, or infinity for a single gap."""
    # BEGIN SOLUTION: spread
    times = [0.0, *incidents(reports, window)]
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    if len(gaps) == 1:
        return math.inf
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    return math.sqrt(variance / len(gaps))
    # END SOLUTION


def interval(save: float, reports: Sequence[float], window: float) -> float:
    """Returns the seconds of work between two checkpoints.

    Args:
        save: seconds for which a checkpoint holds up the work.
        reports: seconds, in ascending order; at least one.
        window: how long reports belong to one incident, in seconds after its first.
    """
    # BEGIN SOLUTION: interval
    mean = mtbf(reports, window)
    r = save / (2 * mean)
    if r >= 1:
        return mean
    return math.sqrt(2 * save * mean) * (1 + math.sqrt(r) / 3 + r / 9) - save
    # END SOLUTION
