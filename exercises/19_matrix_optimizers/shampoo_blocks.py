"""shampoo_blocks: Shampoo's two roots for each block, every block on one rank.

Notebook 19, section 8. Shampoo multiplies a gradient from both sides with roots of sums over all
steps. Roots of large matrices are expensive, so a matrix is cut into blocks.

Rules

- Blocks have `block` rows and columns, at the lower and right edges fewer. They are numbered row of
  blocks after row of blocks, and block k belongs to index k modulo N of the group.
- Of its own blocks, and of no others, a rank keeps L and R, which begin as ε·1. For the gradient G
  of a block, `update` does

      L ← L + G·Gᵀ,   R ← R + Gᵀ·G,   and makes  L^(-1/4) · G · R^(-1/4) .

- `update` gets the same `gradient` on every rank, does not change it, and returns the updates of
  all blocks, on every rank, as one tensor of the gradient's shape and dtype.
- It makes one collective, and a rank sends at most (N-1) times the elements of the rank that has
  most.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_gather


class ShampooBlocks:
    """Shampoo for one matrix.

    Args:
        shape: (rows, columns).
        block: the largest side of a block.
        group: the ranks that share the blocks.
        epsilon: ε.
        dtype: of gradients, L and R.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        block: int,
        group: Group,
        epsilon: float = 1e-6,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        raise NotImplementedError("shampoo_blocks: write your answer here")

    @torch.no_grad()
    def update(self, gradient: torch.Tensor) -> torch.Tensor:
        """One step's direction.

        Args:
            gradient: of the whole matrix, the same on every rank.

        Returns:
            The preconditioned gradient, whole, on every rank.
        """
        raise NotImplementedError("shampoo_blocks: write your answer here")


def inverse_root(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix to the power -1/4, for a symmetric one with eigenvalues above 0."""
    raise NotImplementedError("shampoo_blocks: write your answer here")
