"""young_daly: how often to save a checkpoint, and what failures cost even then.

Notebook 11. A job of many machines fails as soon as one of them does, and all ranks go back to the
last checkpoint. In 54 days of Llama 3's training on 16 384 GPUs, in 2 048 machines, there were 419
unexpected interruptions (Llama 3 paper, arXiv 2407.21783, section 3.3.4): one machine fails every
264 days, the job every 3.1 hours. A job that saves rarely repeats much work, and one that saves
often does little else. The best interval lies in between, and there is a formula for it.

The quantities, all in the same unit of time:

- `interval`: the time of work from one checkpoint to the next, without the saving itself;
- `cost`: how long a checkpoint holds up the work;
- `restart`: the time from a failure until the job computes again, from the last complete
  checkpoint;
- `mtbf`: the mean time between failures. A job of N nodes fails N times as often as one node.

Two formulas for the interval:

- Young (1974): √(2 · cost · mtbf). It assumes that failures are rare compared with checkpoints.
- Daly (2006), with r = cost / (2 · mtbf): √(2 · cost · mtbf) · (1 + √r/3 + r/9) - cost; but if the
  cost is 2 · mtbf or more, the interval is the mtbf.

The share of the time that is lost on average, if failures come at random (with exponentially
distributed gaps):

- A task that takes the time a, and starts over at each failure, fails e^(a/mtbf) - 1 times on
  average, and takes mtbf · (e^(a/mtbf) - 1) until it is done, including failed attempts.
- Here, the task is an interval's work with its checkpoint. Each of its failures is followed by a
  restart, which is itself a task that starts over at each failure.
- The lost share is the share that is not work: 1 - interval / (the average time that an interval
  takes, with its failures and restarts).

And `elapsed` replays a job with given failures, one by one:

- The job works for `interval` (the last time for whatever work is left) and then saves, also after
  the last work. It is over when all work is saved. Work that is not saved when a failure comes is
  lost.
- The times of failures count from the job's start. A failure at the very moment at which a
  checkpoint is complete does not harm it. A failure during a restart makes the restart begin again.
- Failures after the end do not matter.
- All times are whole numbers here, which float64 adds exactly.

Rules: plain Python, double precision; nothing is sent.

Your answer may use nothing of `course_lib`.
"""

import math
from collections.abc import Sequence


def job_mtbf(node_mtbf: float, nodes: int) -> float:
    """Returns the mean time between failures of a job on many nodes."""
    raise NotImplementedError("young_daly: the job")


def young(cost: float, mtbf: float) -> float:
    """Returns Young's interval."""
    raise NotImplementedError("young_daly: Young")


def daly(cost: float, mtbf: float) -> float:
    """Returns Daly's interval."""
    raise NotImplementedError("young_daly: Daly")


def lost_share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """Returns the share of the time that goes into checkpoints, restarts and repeated work.

    Returns:
        Between 0 and 1, for a job that is much longer than its interval. The times are at most a
        few mtbf.
    """
    raise NotImplementedError("young_daly: the share")


def elapsed(
    work: float, interval: float, cost: float, restart: float, failures: Sequence[float]
) -> float:
    """Returns how long a job takes from start to end with these failures.

    Args:
        work: how long the job would take without failures and checkpoints.
        interval: work from one checkpoint to the next.
        cost: the time of a checkpoint.
        restart: the time of a restart.
        failures: their times since the job's start, in ascending order.
    """
    raise NotImplementedError("young_daly: the replay")
