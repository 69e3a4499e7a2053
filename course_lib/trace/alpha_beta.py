"""The cost of a message: α seconds to start it, β seconds for each byte.

Notebook: 00 Ranks and the ledger (alpha_beta_fit), 01 Collectives from scratch (the crossover).
Paper: Hockney, "The communication challenge for MPP" (1994), for the model; Thakur, Rabenseifner
and Gropp (2005), section 4, for the collectives made of such messages.
Costs nothing: two numbers, and arithmetic on them.
The production version knows each link's α and β, what several messages at once do to it, and the
time that a reduction takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.trace.refusal import Refusal

# For N ranks: how many messages follow one another, and how many times S crosses one link.
STEPS = {
    "send": lambda n: (1, 1.0),
    "broadcast": lambda n: (_rounds(n), float(_rounds(n))),
    "reduce_scatter": lambda n: (n - 1, (n - 1) / n),
    "all_gather": lambda n: (n - 1, (n - 1) / n),
    "all_to_all": lambda n: (n - 1, (n - 1) / n),
    "all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "ring all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    "doubling all_reduce": lambda n: (_rounds(n), float(_rounds(n))),
    "halving-doubling all_reduce": lambda n: (2 * _rounds(n), 2 * (n - 1) / n),
}

WHOLE = ("send", "recv", "broadcast", "reduce")  # of which each link carries all bytes


def _rounds(size: int) -> int:
    return math.ceil(math.log2(size)) if size > 1 else 0


@dataclass(frozen=True)
class AlphaBeta:
    """A link between ranks.

    Attributes:
        alpha: seconds that a message takes however small it is.
        beta: seconds for each further byte; 1/β is the bandwidth.
    """

    alpha: float
    beta: float

    @property
    def bandwidth(self) -> float:
        """Bytes per second of one long message."""
        return 1 / self.beta

    def seconds(self, op: str, payload: int, size: int) -> float:
        """Predicted time of a collective built from such messages.

        Args:
            op: a key of STEPS; `all_reduce` alone is the ring's, `broadcast` the binomial tree's.
            payload: S, bytes of the full tensor.
            size: N, ranks.

        Raises:
            KeyError: no formula for `op`.
        """
        messages, crossings = STEPS[op](size)
        return messages * self.alpha + crossings * payload * self.beta


def fit(sizes: Sequence[int], times: Sequence[float]) -> AlphaBeta:
    """The α and β that come nearest to measured times.

    Least squares of the *relative* error, since times span four orders of magnitude: with absolute
    errors the largest message alone would decide, and α would be noise. A negative α is 0 in its
    place, and β as it was.

    Args:
        sizes: bytes of each message, at least two different ones.
        times: seconds of each, positive.

    Raises:
        Refusal: fewer than two different sizes, or a time that is not a positive number.
    """
    possible = all(0 < time < math.inf for time in times)
    if len(set(sizes)) < 2 or len(sizes) != len(times) or not possible:
        raise Refusal(
            f"fit a line to {len(sizes)} sizes and {len(times)} times",
            f"{len(set(sizes))} different sizes, smallest time {min(times, default=0)}",
            "two different sizes and positive times are the least that determine two numbers",
        )
    ones = [1 / t for t in times]
    slopes = [s / t for s, t in zip(sizes, times, strict=True)]
    a11 = sum(x * x for x in ones)
    a12 = sum(x * y for x, y in zip(ones, slopes, strict=True))
    a22 = sum(y * y for y in slopes)
    b1, b2 = sum(ones), sum(slopes)
    determinant = a11 * a22 - a12 * a12
    alpha = (b1 * a22 - b2 * a12) / determinant
    beta = (a11 * b2 - a12 * b1) / determinant
    return AlphaBeta(max(alpha, 0.0), max(beta, 1e-15))


def bus_bandwidth(op: str, payload: int, size: int, seconds: float) -> float:
    """Bytes per second that the links really carried: comparable over N and over operations.

    The algorithm's bandwidth S/t falls with N even on perfect links; times (N-1)/N, or twice that
    for all_reduce, it is what one link must move. For messages, broadcast and reduce the two are
    the same. As in NVIDIA's nccl-tests, PERFORMANCE.md.
    """
    share = 1.0 if op.rpartition(" ")[2] in WHOLE else (size - 1) / size
    return (2 if op.endswith("all_reduce") else 1) * share * payload / seconds
