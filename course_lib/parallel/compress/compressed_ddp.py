"""Data parallelism whose gradients travel compressed.

Notebook: 18 Less communication (error_feedback, powersgd).
Source: the communication hooks of torch's DistributedDataParallel.
Costs as its reducer says, in place of the all-reduce of all gradients.
The production version calls its hook for each bucket, while the backward goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.parallel.compress.feedback import Reducer
from course_lib.parallel.data.ddp import NaiveDDP


class CompressedDDP(NaiveDDP):
    """Replicas whose `synchronize()` makes gradients equal by a reducer.

    Args:
        module: any module.
        group: the data-parallel ranks.
        reducer: `Compressed`, `ErrorFeedback` or `PowerSGD`; one for each wrapper, since it keeps
            what this model owes.
        skip: parameters that something else synchronises.
    """

    def __init__(
        self, module: nn.Module, group: Group, reducer: Reducer, skip: Iterable[nn.Parameter] = ()
    ) -> None:
        super().__init__(module, group, skip)
        self.reducer = reducer

    def _average(self, gradients: Sequence[torch.Tensor]) -> None:
        for gradient, mean in zip(gradients, self.reducer.mean(gradients, self.group), strict=True):
            gradient.copy_(mean)
