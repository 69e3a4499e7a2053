"""goodput: the share of the paid time that went into steps which are still there at the end.

Notebook 17. A job's log is a list of (begin, end, what, step), in seconds, in any order. `what` is
"step" for a step that was finished; everything else (save, wait, load, start, a step that a failure
cut short) has another name, and its step is None. `ranks` is how many ranks the log is of: it holds
the spans of all of them, each step number once for each attempt.

- Useful is the time of finished steps. A job that goes back to a checkpoint makes steps again: of
  the attempts of one step only the last, the one that ends last, is useful.
- Spans that are no steps are paid for, not useful. So is time in which nothing was logged.
- Paid is the time from the first begin to the last end, for every rank.

`goodput` returns useful over paid, a number from 0 to 1. `lost` returns a dict: for each `what` in
the log, and for "step", "repeated" (attempts of steps that were made again later) and "idle"
(nothing logged), its share of the paid time; "step" is goodput. The shares add up to 1, if spans of
one rank do not overlap.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence

Span = tuple[float, float, str, int | None]


def lost(log: Sequence[Span], ranks: int) -> dict[str, float]:
    """Where the paid time went, as shares.

    Args:
        log: not empty.
        ranks: how many ranks it is of.
    """
    raise NotImplementedError("goodput: lost")


def goodput(log: Sequence[Span], ranks: int) -> float:
    """Useful time over paid time."""
    raise NotImplementedError("goodput: goodput")
