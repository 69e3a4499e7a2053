"""PowerSGD: a matrix travels as two thin ones.

Notebook 18. M [rows, columns] is about P·Qᵀ, where P [rows, r] is an orthonormal basis and
Q = MᵀP. One step of power iteration improves the basis, starting from the Q of the step before, and
both products are linear in M: so the ranks' P and Q can be averaged, and belong to the mean of M.

    M = gradient + error            P = mean over the group of M·Q, made orthonormal
    own = Mᵀ·P                      Q = mean over the group of own
    result = P·Qᵀ                   error = M - P·ownᵀ

Rules
- `q` begins as it is given, the same on every rank, and is replaced in every step.
- `error` is what this rank has not sent of its own M; before the first step it is zero.
- Any orthonormal basis of the columns of the mean will do. All ranks must have the same one.
- Two all-reduces in a step, of r·rows and of r·columns numbers. The gradient stays as it is.

Free to use: torch (`torch.linalg.qr` among it), and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


class PowerSGD:
    """Means of one matrix in low rank, with a memory.

    Args:
        q: [columns, r], the same on every rank.

    Attributes:
        q: that of the last step.
        error: [rows, columns], what this rank has not sent; None before the first step.
    """

    def __init__(self, q: torch.Tensor) -> None:
        self.q = q
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        """About the mean over the group.

        Args:
            gradient: this rank's, [rows, columns].
            group: the ranks.

        Returns:
            P·Qᵀ, [rows, columns], the same on every rank.
        """
        raise NotImplementedError("powersgd: one step of power iteration on the mean")
