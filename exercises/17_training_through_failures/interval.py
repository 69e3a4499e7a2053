"""interval: how often to save, from the log of a job's failures.

Notebook 17. Lesson 11 has the formulas; here is a log. It lists when ranks reported a failure, in
seconds since the job's start, ascending. It ends with its last failure.

- One incident has many reports: a node that dies takes several ranks, and their neighbours report
  time-outs. Reports less than `window` seconds after an incident's *first* report belong to it.
- `incidents(reports, window)`: the times of the incidents' first reports.
- `mtbf(reports, window)`: the mean time between incidents, counted from the job's start at 0 to the
  last incident.
- `interval(save, reports, window)`: the work between two checkpoints that Daly's formula gives.
  With r = save / (2 · mtbf) it is √(2 · save · mtbf) · (1 + √r/3 + r/9) - save; but the mtbf itself
  if r is 1 or more.

A log is one sample: `spread(reports, window)` says how far the mtbf may be off, as the standard
error of the mean of k gaps: their standard deviation (with k - 1) over √k, and infinity if k is 1.

Your answer may use nothing of `course_lib`.
"""

import math
from collections.abc import Sequence


def incidents(reports: Sequence[float], window: float) -> list[float]:
    """When each incident was first reported."""
    raise NotImplementedError("interval: incidents")


def mtbf(reports: Sequence[float], window: float) -> float:
    """Mean seconds between incidents."""
    raise NotImplementedError("interval: mtbf")


def spread(reports: Sequence[float], window: float) -> float:
    """The standard error of the mean."""
    raise NotImplementedError("interval: spread")


def interval(save: float, reports: Sequence[float], window: float) -> float:
    """Seconds of work between two checkpoints.

    Args:
        save: how long a checkpoint holds up the work, in seconds.
        reports: ascending, at least one.
        window: seconds in which reports are of one incident.
    """
    raise NotImplementedError("interval: interval")
