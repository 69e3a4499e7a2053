"""Round at random, so that every number keeps its value on average.

Notebook 09. A number x lies between two neighbours of a narrow format. If x lies at the fraction p
of the way from the lower one to the upper one, round up with probability p, and down otherwise.

Rules
- `noise` has a number from [0, 1) for each element, uniformly distributed. It is your only source
  of randomness: for a fraction p of all its possible values, the result must be the upper
  neighbour.
- "Up" means towards plus infinity, for negative numbers too. A number of the format does not
  change.
- The neighbours are those of `round_to`; below 2^(1-bias) they are 2^(1-bias-m) apart.
- A number beyond ±`largest`, including infinity, becomes ±`largest`.
- NaN stays NaN. A result of zero has the sign of x.
- x and `noise` are not changed.

`torch.frexp` and `torch.ldexp` help as in `round_to`, and float64 holds everything exactly.

Your answer may use nothing of `course_lib`.
"""

import torch


def stochastic_round(
    x: torch.Tensor, noise: torch.Tensor, mantissa_bits: int, bias: int, largest: float
) -> torch.Tensor:
    """Rounds each number to one of its two neighbours in a format.

    Args:
        x: float32 of any shape.
        noise: float32 of x's shape, from 0 to below 1.
        mantissa_bits: m, bits after the leading one.
        bias: 1 - bias is the smallest exponent with full precision.
        largest: the largest finite number of the format.

    Returns:
        float32 of the same shape; every number in it is one of the format.
    """
    raise NotImplementedError("stochastic_round: write your answer here")
