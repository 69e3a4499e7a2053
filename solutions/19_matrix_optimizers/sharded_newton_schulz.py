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
    # BEGIN SOLUTION
    a, b, c = COEFFICIENTS
    x = part.T if dim == 0 else part
    square = x.square().sum()
    all_reduce(square, group)
    x = x / square.sqrt().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        all_reduce(gram, group)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if dim == 0 else x
    # END SOLUTION
