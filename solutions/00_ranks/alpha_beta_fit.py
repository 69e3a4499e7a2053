"""The price of a message: fit α and β, predict six operations, report the bus bandwidth.

Notebook 00. A message of S bytes takes α + β·S seconds. Operations over N ranks are made of such
messages. The times of messages that follow one another add up; messages that are under way at the
same time count once:

- `send`: one message of S bytes.
- `broadcast`: a binomial tree. In each round, every rank that has the S bytes sends them to one
  that does not, so the number of ranks that have them doubles, until all N have them.
- `reduce_scatter` and `all_gather`: a ring of N-1 steps; in each step, every rank sends S/N bytes.
- `all_reduce`: a reduce-scatter, then an all-gather.
- `all_to_all`: N-1 steps; in each step, every rank sends S/N bytes to a different partner.

S is always the size of the full tensor: the input of reduce_scatter, the output of all_gather.

Rules: use plain Python, numpy or torch, and compute in double precision. Nothing is sent: the three
functions are arithmetic.
"""

import math
from collections.abc import Sequence

import torch


def alpha_beta_fit(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float]:
    """Fits α and β to measured times.

    The fit minimises the sum of the squares of the *relative* errors, ((α + β·S - t) / t)², because
    the times span four orders of magnitude. A link cannot answer before it is asked: if the fit
    gives a negative α, return 0.0 in its place, and β as the fit gave it.

    Args:
        sizes: bytes of each message, in any order; at least two of them differ.
        times: seconds that each message took, in the same order.

    Returns:
        α in seconds and β in seconds per byte.
    """
    # BEGIN SOLUTION: the fit
    size = torch.tensor(sizes, dtype=torch.float64)
    time = torch.tensor(times, dtype=torch.float64)
    rows = torch.stack([1 / time, size / time], dim=1)  # of (α + β·S) / t = 1
    answer = torch.linalg.lstsq(rows, torch.ones_like(time).unsqueeze(1)).solution
    alpha, beta = answer.flatten().tolist()
    return max(alpha, 0.0), beta
    # END SOLUTION


def predict(op: str, payload: int, size: int, alpha: float, beta: float) -> float:
    """Seconds that an operation takes.

    Args:
        op: one of the six above.
        payload: S, in bytes.
        size: N, the number of ranks. With one rank nothing is sent, and the answer is 0.0; `send`
            always has 2.
        alpha: seconds per message.
        beta: seconds per byte.
    """
    # BEGIN SOLUTION: the six operations
    rounds, steps = math.ceil(math.log2(size)), size - 1
    messages, crossings = {
        "send": (1, 1),
        "broadcast": (rounds, rounds),
        "reduce_scatter": (steps, steps / size),
        "all_gather": (steps, steps / size),
        "all_reduce": (2 * steps, 2 * steps / size),
        "all_to_all": (steps, steps / size),
    }[op]
    return messages * alpha + crossings * payload * beta
    # END SOLUTION


def bus_bandwidth(op: str, payload: int, size: int, seconds: float) -> float:
    """The bandwidth that one link delivered, in GB/s; 1 GB is 10⁹ bytes, as on a cable's label.

    This is not the algorithm bandwidth S/t, which falls as N grows even if the links are perfect.
    Count the bytes that each rank really sent.

    Args:
        op: one of the six above except `broadcast`, whose tree does not load all links equally.
        payload: S, in bytes.
        size: N.
        seconds: how long the operation took.
    """
    # BEGIN SOLUTION: the bandwidth
    carried = predict(op, payload, size, alpha=0.0, beta=1.0)
    return carried / seconds / 1e9
    # END SOLUTION
