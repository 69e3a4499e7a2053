"""The price of a message: fit α and β, predict six operations, report the bus bandwidth.

Notebook 00. A message of S bytes takes α + β·S seconds. Operations over N ranks are made of such
messages; messages that follow one another add up, those that run side by side do not:

- `send`: one message of S bytes.
- `broadcast`: a binomial tree. In each round every rank that has the S bytes sends them on to one
  that has not, so the number of ranks that have them doubles, until all N have them.
- `reduce_scatter` and `all_gather`: a ring of N-1 steps; in each a rank sends S/N bytes.
- `all_reduce`: a reduce-scatter, then an all-gather.
- `all_to_all`: N-1 steps; in each a rank sends S/N bytes to another partner.

S is always the full tensor: what goes into reduce_scatter, what comes out of all_gather.

Rules: plain Python, numpy or torch; numbers in double precision. Everything runs on one process.

Your answer may use nothing of `course_lib`.
"""

import math
from collections.abc import Sequence

import torch


def alpha_beta_fit(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """The α and β that come nearest to measured times.

    Nearest means: the sum of the squares of the *relative* errors, ((α + β·S - t) / t)², is as
    small as it can be, since times span four orders of magnitude. No link answers before it is
    asked: where the fit gives a negative α, return 0.0 for it.

    Args:
        sizes: bytes of each message, in any order, at least two different ones.
        times: seconds that each took.

    Returns:
        α in seconds and β in seconds per byte.
    """
    raise NotImplementedError("alpha_beta_fit: the fit")


def predict(op: str, payload: int, size: int, alpha: float, beta: float) -> float:
    """Seconds that an operation takes.

    Args:
        op: one of the six above.
        payload: S, in bytes.
        size: N, the number of ranks; 1 means that nothing need be sent (`send` has 2).
        alpha: seconds a message.
        beta: seconds a byte.
    """
    raise NotImplementedError("alpha_beta_fit: the six operations")


def bus_bandwidth(op: str, payload: int, size: int, seconds: float) -> float:
    """What one link carried, in GB/s, where 1 GB is 10⁹ bytes as on the cable's label.

    Not S/t, the algorithm bandwidth: it falls with N even on perfect links. Count the bytes that
    each rank really sent.

    Args:
        op: one of the six above but `broadcast`, whose tree loads its links unequally.
        payload: S, in bytes.
        size: N.
        seconds: how long the operation took.
    """
    raise NotImplementedError("alpha_beta_fit: the bandwidth")
