"""newton_schulz: all singular values of a matrix near 1, by products alone.

Notebook 19, section 3. With the coefficients (a, b, c) below, one step is

    A = X·Xᵀ,    X ← a·X + (b·A + c·A·A)·X .

Rules

- `matrix` has shape (rows, columns), in a floating dtype, and is not changed. The result has the
  same shape and dtype, and so does every step's arithmetic.
- X begins as the matrix divided by its Frobenius norm, or by 1e-7 if the norm is smaller: a matrix
  of zeros stays one.
- A is made for the shorter side. A matrix with more rows than columns is transposed first, and the
  result is transposed back. All products together take at most steps·(4·r²·c + 2·r³) operations,
  r the shorter and c the longer side.
- `steps` may be 0.

Your answer may use nothing of `course_lib`.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Makes a matrix nearly orthogonal.

    Args:
        matrix: (rows, columns).
        steps: of the iteration.

    Returns:
        The same directions, with singular values of about 1.
    """
    raise NotImplementedError("newton_schulz: write your answer here")
