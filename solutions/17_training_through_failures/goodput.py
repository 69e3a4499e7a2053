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
"""

from collections.abc import Sequence

Span = tuple[float, float, str, int | None]


def lost(log: Sequence[Span], ranks: int) -> dict[str, float]:
    """Where the paid time went, as shares.

    Args:
        log: not empty.
        ranks: how many ranks it is of.
    """
    # BEGIN SOLUTION: lost
    paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
    last = {
        step: (end, begin)
        for begin, end, what, step in sorted(log, key=lambda s: s[1])
        if what == "step"
    }
    shares = {"repeated": 0.0, "step": 0.0}
    for begin, end, what, step in log:
        name = "repeated" if what == "step" and last[step] != (end, begin) else what
        shares[name] = shares.get(name, 0.0) + (end - begin) / paid
    return {**shares, "idle": 1 - sum(shares.values())}
    # END SOLUTION


def goodput(log: Sequence[Span], ranks: int) -> float:
    """Useful time over paid time."""
    # BEGIN SOLUTION: goodput
    return lost(log, ranks)["step"]
    # END SOLUTION
