"""goodput: the share of the paid time that went into steps which count at the end.

Notebook 17. A job's log is a list of spans (begin, end, what, step), in seconds, in any order.
`what` is "step" for a step that was finished, and `step` is its number. All other spans (save,
wait, load, start, a step that a failure cut short) have other names, and their step is None. The
log holds the spans of all `ranks` ranks, and each step number occurs once for each attempt at the
step.

- The time of finished steps is useful. A job that goes back to a checkpoint repeats steps: of all
  attempts at one step, only the one that ends last is useful.
- Spans that are not steps are paid for but not useful. The same holds for time in which nothing was
  logged.
- Every rank is paid for from the first begin in the log to the last end.

`goodput` returns the useful time divided by the paid time, a number from 0 to 1. `lost` returns a
dict with shares of the paid time: one for each `what` in the log, and always "step", "repeated"
(attempts at steps that were repeated later) and "idle" (nothing was logged). The share of "step" is
the goodput. If the spans of one rank do not overlap, the shares add up to 1.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence

Span = tuple[float, float, str, int | None]


def lost(log: Sequence[Span], ranks: int) -> dict[str, float]:
    """Returns the shares of the paid time by name.

    Args:
        log: the spans; at least one.
        ranks: how many ranks the log covers.
    """
    raise NotImplementedError("goodput: lost")


def goodput(log: Sequence[Span], ranks: int) -> float:
    """Returns the useful time divided by the paid time."""
    raise NotImplementedError("goodput: goodput")
