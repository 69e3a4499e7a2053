"""sharded_newton_schulz: the iteration on a matrix that nobody has whole.

Notebook 19, section 5. A matrix is cut along one dimension, as tensor parallelism cuts weights. In
X·Xᵀ the dimension of the columns is summed over, so parts of the columns give parts of a sum.

Rules

- `part` holds this rank's rows (`dim` = 0) or columns (`dim` = 1), in the order of the group's
  indices. Parts have different sizes, and may be empty.
- The result is this rank's part of `newton_schulz(whole, steps)`, in the same shape and dtype, even
  where the side that is cut is the shorter one.
- The norm is that of the whole matrix, and at least 1e-7.
- No rank gets anyone's part. A rank makes steps + 1 all-reduces: one number for the norm, and u × u
  in each step, u being the side that is not cut.
- `part` is not changed.

Your answer may use `comm` and `parallel.newton_schulz` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def sharded_newton_schulz(
    part: torch.Tensor, dim: int, group: Group, steps: int = 5
) -> torch.Tensor:
    """Makes a cut matrix nearly orthogonal.

    Args:
        part: this rank's rows or columns.
        dim: the dimension that is cut, 0 or 1.
        group: the ranks that have the parts.
        steps: of the iteration.

    Returns:
        This rank's part of the result.
    """
    raise NotImplementedError("sharded_newton_schulz: write your answer here")
