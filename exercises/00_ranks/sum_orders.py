"""One sum, four orders: how far apart they are, and which tolerance follows.

Notebook 00. A computer rounds after every addition, so (a + b) + c and a + (b + c) differ, and an
all-reduce adds in an order that you do not choose. In a dtype with 1 + eps as the number after 1,
one addition is off by at most eps/2 of its result.

Rules: every partial sum is rounded to x's dtype, so nothing may be accumulated in a wider one
(`torch.sum` and `cumsum` do that behind your back): add tensors of x's dtype with `+`. Only the sum
`float64` is taken in float64 throughout.

Your answer may use nothing of `course_lib`.
"""

import torch


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Adds up the same numbers in four ways.

    Args:
        x: at least one number, one-dimensional, of any floating-point dtype.

    Returns:
        Four scalar tensors; the first three have x's dtype.
        `forwards`: x[0] + x[1], then + x[2], and so on.
        `pairwise`: neighbours first, x[0] + x[1], x[2] + x[3], ...; of these sums again the
        neighbours, until one is left. Where their number is odd, the last one waits for the next
        round.
        `by_magnitude`: like forwards, but smallest absolute value first.
        `float64`: as float64.
    """

    raise NotImplementedError("sum_orders: the sums")


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    """How far a sum of n numbers may be from the exact one, as a part of the sum of their |x|.

    It must never refuse a right sum, whatever the numbers and their order; yet it must refuse one
    in which one of n equal numbers is missing, wherever the dtype is good enough to tell. Above 1
    it would take 0 for a right sum, so it is never more than that. Integers are added without
    error.

    Args:
        dtype: in which the numbers are added.
        n: how many they are.
    """
    raise NotImplementedError("sum_orders: the tolerance")
