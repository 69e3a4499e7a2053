"""Error feedback: what was not sent is kept, and sent later.

Notebook: 18 Less communication (error_feedback).
Paper: Seide et al., "1-Bit Stochastic Gradient Descent" (2014), where it was found; Karimireddy et
al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes" (2019), why it works.
Costs a copy of the gradients in memory; bytes are those of the compressor, (N-1)·B a rank.
The production version (torch's powerSGD_hook) keeps it in each bucket.

With gradient g, message C(·) and memory e: sent = C(g + e) and e ← g + e - sent. The sum over all
steps telescopes: Σ sent = Σ g - e, so what has arrived lags behind by one memory, however long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from course_lib.comm import CommError, Group
from course_lib.parallel.compress.compressors import Compressor
from course_lib.parallel.compress.gathered_mean import GatheredMean


class Reducer(Protocol):
    """Makes one list of gradients out of the ranks' own; the same list on every rank."""

    def mean(self, gradients: Sequence[torch.Tensor], group: Group) -> list[torch.Tensor]:
        """About the mean over the group; collective, and not in place."""


class Compressed:
    """The mean of compressed gradients; what is lost is lost."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    def mean(self, gradients: Sequence[torch.Tensor], group: Group) -> list[torch.Tensor]:
        """(N-1)·B bytes sent by each rank, B those of the compressor for all gradients."""
        return GatheredMean(gradients, self.compressor, group).wait()


class ErrorFeedback:
    """The mean of compressed gradients, with what earlier steps have not sent.

    Args:
        compressor: any.

    Attributes:
        errors: what this rank has not sent so far, in the shapes of the gradients; none before the
            first step. It is part of a checkpoint, and differs from rank to rank.

    Raises (in `mean`):
        CommError: the gradients have other shapes than those of the step before.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.errors: list[torch.Tensor] = []

    @torch.no_grad()
    def mean(self, gradients: Sequence[torch.Tensor], group: Group) -> list[torch.Tensor]:
        """(N-1)·B bytes sent by each rank, B those of the compressor for all gradients."""
        owed = add_errors(gradients, self.errors)
        under_way = GatheredMean(owed, self.compressor, group)
        self.errors = [o - sent for o, sent in zip(owed, under_way.arrives, strict=True)]
        return under_way.wait()


def add_errors(
    gradients: Sequence[torch.Tensor], errors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients with what is still owed, in tensors of their own; nothing is owed at first.

    An overflow is not owed: a loss scaler has skipped its step.

    Raises:
        CommError: the shapes differ.
    """
    if not errors:
        return [gradient.detach().clone() for gradient in gradients]
    found, known = [[tensor.shape for tensor in some] for some in (gradients, errors)]
    if found != known:
        raise CommError(
            f"gradients of shapes {[tuple(s) for s in found]} with error feedback",
            f"what is owed has shapes {[tuple(s) for s in known]}",
            "every step must bring the same gradients in the same order",
        )
    return [g + error.nan_to_num(0, 0, 0) for g, error in zip(gradients, errors, strict=True)]
