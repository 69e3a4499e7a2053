"""One sum in four ways: how far apart the results are, and which tolerance follows from that.

Notebook 00. A computer rounds after every addition, so (a + b) + c and a + (b + c) differ, and an
all-reduce adds in an order that you do not choose. If 1 + eps is the next number after 1 in a
dtype, the rounding error of one addition is at most eps/2 times its result.

Rules: every partial sum is rounded to x's dtype, so nothing may be accumulated in a wider one
(`torch.sum` and `cumsum` do that behind your back): add tensors of x's dtype with `+`. The only
exception is the sum named `float64`, which is computed in float64 throughout.

Your answer may use nothing of `course_lib`.
"""

import torch


def sum_orders(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Adds up the same numbers in four ways.

    Args:
        x: one-dimensional, at least one number, of any floating-point dtype. Not changed.

    Returns:
        Four scalar tensors (no dimensions); the first three have x's dtype.
        `forwards`: x[0] + x[1], then + x[2], and so on.
        `pairwise`: in rounds. The first round adds neighbours, x[0] + x[1], x[2] + x[3], ...; the
        next adds neighbours among these sums, and so on until one is left. If a round has an odd
        number of terms, the last one goes into the next round as it is.
        `by_magnitude`: like `forwards`, but the smallest absolute value comes first.
        `float64`: the sum of the numbers converted to float64, a float64 tensor.
    """

    raise NotImplementedError("sum_orders: the sums")


def tolerance_for(dtype: torch.dtype, n: int) -> float:
    """How far a sum of n numbers may be from the exact sum, as a fraction of the sum of their |x|.

    A sum within the tolerance is accepted. It must accept every right sum, whatever the numbers and
    their order. It must reject a sum in which one of n equal numbers is missing, as long as n²·eps
    is below 0.4; with more numbers, rounding may hide that. It is at most 1, because above 1 even 0
    would be accepted as the sum. For integer dtypes it is 0.0: integers are added without error.

    Args:
        dtype: the dtype in which the numbers are added.
        n: how many numbers there are.
    """
    raise NotImplementedError("sum_orders: the tolerance")
