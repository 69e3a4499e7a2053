"""What stages have in common: the two copies of a tied embedding.

Notebook: 08 Pipeline parallel (split_stages).
Paper: Shoeybi et al., "Megatron-LM" (2019).
Costs an all-reduce of the weight's bytes between two ranks, every step.
The production version (Megatron-core) makes the group of these two ranks once, at the start, with
all its other groups.
"""

from __future__ import annotations

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def sum_tied_gradient(weight: nn.Parameter, pair: Group) -> None:
    """Gives both copies of a tied weight the same gradient: the sum of both.

    Call it after the backward, before the step, on both ranks.

    Args:
        weight: this rank's copy; a `grad` of None counts as zeros.
        pair: the ranks of the first and of the last stage.
    """
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
