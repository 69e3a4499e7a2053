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

Your answer may use nothing of `course_lib`.
"""

import math
from collections.abc import Sequence


def incidents(reports: Sequence[float], window: float) -> list[float]:
    """Returns the time of each incident's first report."""
    raise NotImplementedError("interval: incidents")


def mtbf(reports: Sequence[float], window: float) -> float:
    """Returns the mean number of seconds between incidents."""
    raise NotImplementedError("interval: mtbf")


def spread(reports: Sequence[float], window: float) -> float:
    """Returns the standard error of the mean gap, or infinity for a single gap."""
    raise NotImplementedError("interval: spread")


def interval(save: float, reports: Sequence[float], window: float) -> float:
    """Returns the seconds of work between two checkpoints.

    Args:
        save: seconds for which a checkpoint holds up the work.
        reports: seconds, in ascending order; at least one.
        window: how long reports belong to one incident, in seconds after its first.
    """
    raise NotImplementedError("interval: interval")
