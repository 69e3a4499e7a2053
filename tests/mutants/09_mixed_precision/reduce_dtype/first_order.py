"""variant: k·u without its second order, and gradients divided in float64"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    share = gradient.double().div(group.size).to(dtype)
    all_reduce(share, group)
    return share.to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    size = sum(gradient.double().abs() for gradient in gradients) / len(gradients)
    return size * len(gradients) * torch.finfo(dtype).eps / 2
