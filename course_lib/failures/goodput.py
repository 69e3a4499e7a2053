"""What is paid for: the share of the time that went into steps that are still there at the end.

Notebook: 17 Training through failures (goodput, interval).
Source: Young (1974) and Daly (2006) for the interval; Google's ML Goodput for the word.
Costs nothing: arithmetic on logs.
The production version reads the scheduler's log as well, for the time before a job began.

Every policy is replayed against the same list of failures, in seconds since the start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.trace import Refusal


class Span(NamedTuple):
    """Something that a job did, in seconds since its start.

    Attributes:
        begin: when it began.
        end: when it ended.
        what: `step`, or what else it spent its time on: `save`, `wait`, `load`, ...
        step: which step; None for everything else.
    """

    begin: float
    end: float
    what: str
    step: int | None = None


def goodput(log: Sequence[Span], ranks: int = 1) -> float:
    """Useful time over all paid time, from the first begin to the last end.

    Useful is a step that was not made again: a step that was lost and repeated counts once, with
    its last attempt. Only useful steps have the kind `step`: one that a failure cut short
    belongs in the log under another name.

    Args:
        log: in any order; not empty.
        ranks: how many ranks it is the log of: each is paid for all the time.

    Returns:
        Between 0 and 1.
    """
    last = {span.step: span for span in sorted(log) if span.what == "step"}
    useful = sum(span.end - span.begin for span in last.values())
    return useful / (max(span.end for span in log) - min(span.begin for span in log)) / ranks


class Policy(NamedTuple):
    """What a way to survive costs, in seconds.

    Attributes:
        save: how long training stands still for a checkpoint.
        restart: from a failure until all compute again.
    """

    save: float
    restart: float


def replay(work: float, interval: float, policy: Policy, failures: Sequence[float]) -> float:
    """How long a job takes that goes back to its last checkpoint at each failure, in seconds.

    Args:
        work: how long it would take without failures and checkpoints.
        interval: work between two checkpoints.
        policy: what these and a restart cost.
        failures: ascending; one that comes during a restart begins it again.

    Raises:
        Refusal: the interval is not above 0, so that the job would never end.
    """
    if not interval > 0:
        raise Refusal("replay a job", f"a checkpoint every {interval} s of work", "it never ends")
    coming = iter(failures)
    failure = next(coming, math.inf)
    now = saved = starting = 0.0
    while saved < work:
        piece = min(interval, work - saved)
        end = now + starting + piece + policy.save
        if failure < end:
            now, starting = failure, policy.restart
            failure = next(coming, math.inf)
        else:
            now, starting, saved = end, 0.0, saved + piece
    return now


def young(save: float, mtbf: float) -> float:
    """Young's interval, √(2 · save · mtbf), in the unit of both."""
    return math.sqrt(2 * save * mtbf)


def mean_gap(failures: Sequence[float]) -> float:
    """The mean time between failures of a log that begins at 0 and ends with its last failure."""
    return failures[-1] / len(failures)
