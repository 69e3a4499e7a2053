"""PowerSGD: the gradient of a matrix as a product of two thin ones, by one step of power iteration.

Notebook: 18 Less communication (powersgd).
Paper: Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization" (2019), algorithms 1 and 2.
Costs two all-reduces, of r·Σ rows and r·Σ columns, and one of what is no matrix or would not get
smaller, each 2(N-1)/N times its bytes; 4·r operations for each weight; memory for what is owed.
The production version (torch's powerSGD_hook) begins with steps of plain all-reduce, and leaves a
matrix whole unless it becomes at least twice as small.

P = MQ and Q = MᵀP are linear in M, so the mean of the ranks' P is the P of the mean: thin matrices
can be all-reduced, where the messages of other compressors must be gathered.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm import CommError, Group
from course_lib.parallel.compress.feedback import add_errors
from course_lib.parallel.flat_mean import FlatMean


class PowerSGD:
    """The mean of gradients in rank `rank`, with what earlier steps have not sent.

    A gradient of more than two dimensions is taken as rows of its first. Ranks draw the same first
    Q from the seed; from then on Q is that of the step before, so that the iteration goes on.

    Args:
        rank: r, columns of P and Q.
        seed: of the first Q; the same on every rank.

    Attributes:
        errors: what this rank has not sent of the matrices that are compressed; none before the
            first step.

    Raises:
        CommError: r is below 1; in `mean`, the shapes differ from those of the step before.
    """

    def __init__(self, rank: int, seed: int = 0) -> None:
        if rank < 1:
            raise CommError(f"PowerSGD(rank={rank})", "no columns", "r is at least 1")
        self.rank, self.seed = rank, seed
        self.errors: list[torch.Tensor] = []
        self._q: list[torch.Tensor] = []

    @torch.no_grad()
    def mean(self, gradients: Sequence[torch.Tensor], group: Group) -> list[torch.Tensor]:
        """P·Qᵀ for each matrix, the mean of the others; collective, three all-reduces."""
        means = [torch.empty_like(gradient) for gradient in gradients]
        thin = [n for n, gradient in enumerate(gradients) if self.compresses(gradient)]
        whole = [n for n in range(len(gradients)) if n not in set(thin)]
        under_way = FlatMean([gradients[n] for n in whole], group)
        matrices = add_errors([gradients[n].flatten(1) for n in thin], self.errors)
        if not self._q:
            self._q = [self._first(matrix, n) for n, matrix in enumerate(matrices)]
        p = FlatMean([m @ q for m, q in zip(matrices, self._q, strict=True)], group).wait()
        p = [_orthonormal(columns) for columns in p]
        own = [m.mH @ columns for m, columns in zip(matrices, p, strict=True)]
        self.errors = [m - a @ b.mH for m, a, b in zip(matrices, p, own, strict=True)]
        q = FlatMean(own, group).wait()
        for n, a, b in zip(thin, p, q, strict=True):
            means[n] = (a @ b.mH).view(gradients[n].shape)
        self._q = [columns.nan_to_num(0, 0, 0) for columns in q]
        for n, mean in zip(whole, under_way.wait(), strict=True):
            means[n] = mean
        return means

    def compresses(self, gradient: torch.Tensor) -> bool:
        """Whether P and Q of this gradient are smaller than itself."""
        return gradient.dim() > 1 and self.thin_elements(gradient) < gradient.numel()

    def thin_elements(self, gradient: torch.Tensor) -> int:
        """r·(rows + columns), where r is at most either."""
        rows, columns = gradient.flatten(1).shape
        return min(self.rank, rows, columns) * (rows + columns)

    def _first(self, matrix: torch.Tensor, number: int) -> torch.Tensor:
        """Drawn on the CPU, where all ranks draw alike."""
        generator = torch.Generator().manual_seed(self.seed + number)
        shape = (matrix.shape[1], min(self.rank, *matrix.shape))
        return torch.randn(shape, generator=generator, dtype=matrix.dtype).to(matrix.device)


def _orthonormal(columns: torch.Tensor) -> torch.Tensor:
    """Torch's QR takes no 16-bit numbers."""
    wide = columns.float() if columns.dtype.itemsize < 4 else columns
    return torch.linalg.qr(wide).Q.to(columns.dtype)
