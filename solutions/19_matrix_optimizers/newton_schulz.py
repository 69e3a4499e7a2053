"""newton_schulz: bring all singular values of a matrix near 1 with matrix products alone.

Notebook 19, section 3. With the coefficients (a, b, c) below, one step is

    A = X·Xᵀ,    X ← a·X + (b·A + c·A·A)·X .

Rules

- `matrix` has shape (rows, columns) and a floating dtype, and is not changed. The result has the
  same shape and dtype, and every step computes in this dtype.
- X begins as the matrix divided by its Frobenius norm, or by 1e-7 if the norm is smaller, so that a
  matrix of zeros stays zero.
- A belongs to the shorter side: transpose a matrix with more rows than columns first, and transpose
  the result back. All products together take at most steps·(4·r²·c + 2·r³) operations, where r is
  the shorter and c the longer side.
- `steps` may be 0. The result is then the matrix after its division by the norm.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Returns a matrix with the same singular vectors, made nearly orthogonal.

    Args:
        matrix: (rows, columns).
        steps: of the iteration.

    Returns:
        A new matrix whose singular values are about 1.
    """
    # BEGIN SOLUTION
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm().clamp(min=1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x
    # END SOLUTION
