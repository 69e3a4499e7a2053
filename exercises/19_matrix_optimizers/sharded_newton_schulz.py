"""sharded_newton_schulz: Newton-Schulz on a matrix that no rank has whole.

Notebook 19, section 5. A matrix is cut along one dimension, as tensor parallelism cuts weights.
X·Xᵀ sums over the columns, so each rank's columns give one term of that sum.

Rules

- `part` holds this rank's rows (`dim` = 0) or columns (`dim` = 1), in the order of the group's
  indices. The parts may have different sizes, and may be empty.
- The result is this rank's part of `newton_schulz(whole, steps)`, with the shape and dtype of
  `part`, even if the side that is cut is the shorter one.
- The norm is that of the whole matrix, and at least 1e-7.
- No rank receives another rank's part. A rank makes exactly steps + 1 all-reduces: one of a single
  number for the norm, and in each step one of a u × u matrix, where u is the side that is not cut.
  All are in the dtype of `part`.
- `part` is not changed.

Your answer may use `comm` and `parallel.newton_schulz` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def sharded_newton_schulz(
    part: torch.Tensor, dim: int, group: Group, steps: int = 5
) -> torch.Tensor:
    """Makes a matrix nearly orthogonal that is cut over the ranks; collective.

    Args:
        part: this rank's rows or columns.
        dim: the dimension that is cut, 0 or 1; the same on every rank.
        group: the ranks that have the parts.
        steps: of the iteration.

    Returns:
        This rank's part of the result.
    """
    raise NotImplementedError("sharded_newton_schulz: write your answer here")
