"""shampoo_blocks: Shampoo's two roots for each block, and each block on one rank.

Notebook 19, section 8. Shampoo multiplies a gradient from both sides by roots of matrices that it
has summed over all steps. Roots of large matrices are expensive, so the gradient is cut into
blocks.

Rules

- Blocks have `block` rows and columns, or fewer at the lower and right edges. They are numbered
  from left to right, one row of blocks after another, and block k belongs to index k modulo N of
  the group.
- A rank keeps L and R of its own blocks and of no others; they begin as ε·1. For the gradient G of
  a block, `update` computes

      L ← L + G·Gᵀ,   R ← R + Gᵀ·G,   and the update  L^(-1/4) · G · R^(-1/4) .

- `update` gets the same `gradient` on every rank and does not change it. On every rank it returns
  the updates of all blocks in a new tensor of the gradient's shape and dtype.
- It makes one collective, and each rank sends at most (N-1) times the number of elements that the
  rank with the most elements owns.
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
        dtype: of the gradients, L and R.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        block: int,
        group: Group,
        epsilon: float = 1e-6,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        # BEGIN SOLUTION
        self.group = group
        self.blocks = [
            (slice(top, min(top + block, shape[0])), slice(left, min(left + block, shape[1])))
            for top in range(0, shape[0], block)
            for left in range(0, shape[1], block)
        ]
        self.counts = [(r.stop - r.start) * (c.stop - c.start) for r, c in self.blocks]
        self.room = max(sum(self.counts[index :: group.size]) for index in range(group.size))
        self.sums = [
            [epsilon * torch.eye(side.stop - side.start, dtype=dtype) for side in sides]
            for sides in self.blocks[group.index :: group.size]
        ]
        # END SOLUTION

    @torch.no_grad()
    def update(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the direction of one step; collective.

        Args:
            gradient: that of the whole matrix, the same on every rank.

        Returns:
            The whole preconditioned gradient, on every rank.
        """
        # BEGIN SOLUTION
        size, index = self.group.size, self.group.index
        mine = gradient.new_zeros(self.room)
        start = 0
        for (left, right), sides in zip(self.sums, self.blocks[index::size], strict=True):
            part = gradient[sides]
            left += part @ part.T
            right += part.T @ part
            made = inverse_root(left) @ part @ inverse_root(right)
            mine[start : start + part.numel()] = made.flatten()
            start += part.numel()
        rows = gradient.new_empty(size, self.room)
        all_gather(rows, mine, self.group)
        result = torch.empty_like(gradient)
        for owner, row in enumerate(rows):
            counts = self.counts[owner::size]
            parts = row[: sum(counts)].split(counts)
            for sides, part in zip(self.blocks[owner::size], parts, strict=True):
                result[sides] = part.view_as(result[sides])
        return result
        # END SOLUTION


def inverse_root(matrix: torch.Tensor) -> torch.Tensor:
    """Returns the power -1/4 of a symmetric matrix whose eigenvalues are above 0."""
    # BEGIN SOLUTION
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values**-0.25) @ vectors.T
    # END SOLUTION
