"""reduce_dtype: average gradients over the ranks in a dtype of your choice, and know the error.

Notebook 09. The dtype in which gradients are summed over the ranks need not be their own. Float32
gradients that are sent in bf16 take half the bytes. Bf16 gradients that are sent in float32 take
twice the bytes, and lose almost nothing in the sum; only the last rounding counts, when the mean
becomes bf16 again. So the reduce dtype is a trade-off between bytes and error, and you can compute
both beforehand.

Rules for `reduce_mean`:

- It returns the mean over the ranks in the gradient's own dtype and shape, in new memory; the given
  gradient does not change. The gradient may be a view that is not contiguous, a scalar or empty.
- Everything is sent in the reduce dtype: 2(N-1)/N·S bytes per rank, for N ranks and S bytes of
  gradients in that dtype. Use `course_lib.comm`; every rank takes part, whatever its gradient.
- Divide by N before the sum: the largest fp16 number is 65504, and a sum gets there sooner than a
  mean. Divide in a dtype that has all numbers of both dtypes (`torch.promote_types` names it): then
  a gradient that is too large for fp16 is divided before it is cast, and a bf16 one after it is.

Rules for `error_bound`: how far from the exact mean the result can be, whatever the numbers and in
whichever order the ranks' terms are added.

- The *unit roundoff* u of a dtype is half of `torch.finfo(dtype).eps`, the distance from 1 to the
  next number: 2⁻⁸ for bf16. Rounding a number changes it by at most u times its size, so a term
  that is rounded k times on its way into the sum is off by at most k·u / (1 - k·u) of its size.
- Count k, for N terms: the division and the cast of a term count as one rounding together, and so
  does each addition that it goes through. Count the most that any order of adding can have.
- The errors of the terms add up, even where the terms themselves cancel: each term counts with its
  magnitude. The terms are the N-th parts of the gradients.
- The bound must hold, and must not be larger than 1.6 times this one. Two things are left out:
  overflow, and numbers so small that their dtype has fewer digits for them. The gradient's dtype is
  at least as fine as the reduce dtype here, so that casting back changes nothing.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype.

    Args:
        gradient: this rank's, of a floating dtype; same shape and dtype on every rank.
        group: the ranks.
        dtype: the dtype to send and sum in: bf16, fp16, float32 or float64.

    Returns:
        The mean, in the gradient's dtype, the same on every rank.
    """
    raise NotImplementedError("reduce_dtype: the mean")


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Returns how far the mean, summed in `dtype`, can be from the exact one.

    Args:
        gradients: those of all ranks, all of the same shape.
        dtype: as in `reduce_mean`.

    Returns:
        The bound for each element, float64, of the gradients' shape.
    """
    raise NotImplementedError("reduce_dtype: the bound")
