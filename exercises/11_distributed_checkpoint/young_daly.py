"""young_daly: how often to save a checkpoint, and what failures cost even then.

Notebook 11. A job of many machines fails as soon as one of them does, and all ranks go back to the
last checkpoint. In 54 days of Llama 3's training on 16 384 GPUs, in 2 048 machines, there were 419
unexpected interruptions (Llama 3 paper, arXiv 2407.21783, section 3.3.4): one machine fails every
264 days, the job every 3.1 hours. Who seldom saves does much work again; who saves often does
little else. In between is a best interval, and it has a formula.

The quantities, all in the same unit of time:

- `interval`: work from one checkpoint to the next, without the saving itself;
- `cost`: how long a checkpoint holds up the work;
- `restart`: from a failure until the job computes again, from the last checkpoint that is complete;
- `mtbf`: the mean time between failures. A job of N nodes fails N times as often as one node.

Two formulas for the interval:

- Young (1974): √(2 · cost · mtbf). It takes failures to be rare against checkpoints.
- Daly (2006), with r = cost / (2 · mtbf): √(2 · cost · mtbf) · (1 + √r/3 + r/9) - cost; but if the
  cost is 2 · mtbf or more, the interval is the mtbf.

What is lost of the time on average, if failures come at random (exponentially distributed):

- Something that takes a, and starts over at each failure, fails e^(a/mtbf) - 1 times on average,
  and takes mtbf · (e^(a/mtbf) - 1) until it is done, failed attempts included.
- Here that is an interval's work with its checkpoint. After each of its failures comes a restart,
  which is itself something that starts over at each failure.
- The lost share is what is not work: 1 - interval / (the average time that an interval takes).

And `elapsed` replays a job with given failures, one by one:

- It works for `interval` (the last time for what is left), then saves, also after the last work;
  it is over when all work is saved. Work that is not saved when a failure comes is lost.
- A failure comes at a time since the job's start. At the very moment at which a checkpoint is
  complete, it finds it complete. A failure during a restart begins the restart again.
- Failures after the end do not matter.

Rules: plain Python, double precision; nothing is sent.

Your answer may use nothing of `course_lib`.
"""

import math
from collections.abc import Sequence


def job_mtbf(node_mtbf: float, nodes: int) -> float:
    """Mean time between failures of a job of many nodes."""
    raise NotImplementedError("young_daly: the job")


def young(cost: float, mtbf: float) -> float:
    """Young's interval."""
    raise NotImplementedError("young_daly: Young")


def daly(cost: float, mtbf: float) -> float:
    """Daly's interval."""
    raise NotImplementedError("young_daly: Daly")


def lost_share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """The share of the time that goes into checkpoints, restarts and work done again.

    Returns:
        Between 0 and 1, for a job that is much longer than its interval.
    """
    raise NotImplementedError("young_daly: the share")


def elapsed(
    work: float, interval: float, cost: float, restart: float, failures: Sequence[float]
) -> float:
    """How long a job takes, from its start to its end, with these failures.

    Args:
        work: how long it would take without failures and checkpoints.
        interval: work from one checkpoint to the next.
        cost: of a checkpoint.
        restart: after a failure.
        failures: their times since the job's start, in ascending order.
    """
    raise NotImplementedError("young_daly: the replay")
