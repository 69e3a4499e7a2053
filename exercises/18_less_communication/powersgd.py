"""PowerSGD: a matrix is sent as two thin ones.

Notebook 18. M [rows, columns] is approximated by P·Qᵀ, where P [rows, r] is an orthonormal basis
and Q = MᵀP. Each step makes one step of power iteration, which begins with the Q of the previous
step and improves the basis. Both products are linear in M, so the ranks can average P and Q, and
the means belong to the mean of M.

    M = gradient + error            P = mean over the group of M·Q, made orthonormal
    own = Mᵀ·P                      Q = mean over the group of own
    result = P·Qᵀ                   error = M - P·ownᵀ

Rules
- `q` begins as it is given, the same on every rank, and is replaced by a new tensor in every step.
- `error` is what this rank has not sent of its own M; before the first step it is zero.
- Any orthonormal basis of the columns of the mean will do, but all ranks must have the same one.
  Columns of the mean may be zero, or depend on each other: the result has no NaN.
- Each step makes two all-reduces, of r·rows and of r·columns numbers, in the gradient's dtype. The
  gradient is not changed.

You may use torch (including `torch.linalg.qr`) and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


class PowerSGD:
    """Averages one matrix in low rank, and keeps what was not sent.

    Args:
        q: [columns, r], the same on every rank.

    Attributes:
        q: the Q of the last step.
        error: [rows, columns], what this rank has not sent; None before the first step.
    """

    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        """Returns approximately the mean over the group; collective.

        Args:
            gradient: this rank's own, [rows, columns].
            group: the ranks.

        Returns:
            P·Qᵀ, [rows, columns], the same on every rank.
        """
        raise NotImplementedError("powersgd: one step of power iteration on the mean")
