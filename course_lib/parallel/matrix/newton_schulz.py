"""A matrix made orthogonal by products alone: whole, or from parts that ranks hold.

Notebook: 19 Optimizers that see matrices (newton_schulz, sharded_newton_schulz).
Source: Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024), which has the
coefficients; the iteration is in Higham, "Functions of Matrices" (2008), chapter 8.
Costs 4·r²·c + 2·r³ operations a step for r rows and c >= r columns. Parts of a matrix cost one
all-reduce of their Gram matrix a step: u² elements, u the side that is not cut.
The production version (torch.optim.Muon) computes in bfloat16, and has whole matrices only.

Each step maps every singular value s to a·s + b·s³ + c·s⁵ and leaves the directions as they are.
These coefficients lift small values fast and let large ones swing between 0.7 and 1.2: good enough
for an update, and five steps do it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm import CommError, Group, all_reduce

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
SMALLEST = 1e-7  # a norm below this is a matrix of zeros, which stays one


def newton_schulz(matrix: torch.Tensor, steps: int = STEPS) -> torch.Tensor:
    """The nearest matrix whose singular values are all about 1.

    Args:
        matrix: (rows, columns), a floating dtype; not changed.
        steps: of the iteration; five bring singular values from 0.01 to about 1.

    Returns:
        A tensor of the same shape and dtype.

    Raises:
        CommError: it is not a matrix of real numbers.
    """
    _refuse("newton_schulz", matrix)
    x = matrix / _wide(matrix).norm().clamp(min=SMALLEST)
    x = x.T if (tall := len(x) > len(x.T)) else x
    for _ in range(steps):
        x = _step(x, x @ x.T)
    return x.T if tall else x


def sharded_newton_schulz(
    part: torch.Tensor, dim: int, group: Group, steps: int = STEPS
) -> torch.Tensor:
    """The same for a matrix that is cut along one dimension: each rank's part of the result.

    The Gram matrix of the side that is not cut is a sum over the parts, so it is all that ranks
    exchange. Cut the longer side: then it is the small one of the two Gram matrices.

    Args:
        part: this rank's rows or columns, in the order of the group's indices.
        dim: the dimension that is cut, 0 or 1.
        group: the ranks that have the parts.
        steps: as for `newton_schulz`.

    Returns:
        This rank's part of the result. Sends steps + 1 all-reduces, of u² elements each but for
        the first, of one: 2(N-1)/N times their bytes.

    Raises:
        CommError: it is not part of a matrix of real numbers, or has no such dimension.
    """
    _refuse("sharded_newton_schulz", part, dim)
    x = part.T if dim == 0 else part  # (u, this rank's part of the side that is cut)
    square = _wide(x).square().sum()
    all_reduce(square, group)
    x = x / square.sqrt().clamp(min=SMALLEST)
    for _ in range(steps):
        gram = x @ x.T
        all_reduce(gram, group)
        x = _step(x, gram)
    return x.T.contiguous() if dim == 0 else x


def newton_schulz_flops(shape: Sequence[int], steps: int = STEPS) -> int:
    """Operations of `newton_schulz` for a shape; a multiplication and an addition are two."""
    r, c = sorted(shape)
    return steps * (4 * r * r * c + 2 * r**3)


def _refuse(asked: str, matrix: torch.Tensor, dim: int = 0) -> None:
    if matrix.dim() != 2 or not matrix.is_floating_point() or dim not in (0, 1):
        raise CommError(
            f"{asked} along dim {dim}",
            f"a tensor of shape {tuple(matrix.shape)}, {matrix.dtype}",
            "it takes a matrix of real numbers, whose dimensions are 0 and 1",
        )


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Of more range than fp16, where a norm overflows and squares vanish long before x does."""
    return x.float() if x.dtype == torch.float16 else x


def _step(x: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    a, b, c = COEFFICIENTS
    return a * x + (b * gram + c * gram @ gram) @ x
