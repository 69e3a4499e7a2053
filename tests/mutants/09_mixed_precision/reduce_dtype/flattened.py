"""mutant: the shape of"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    wide = torch.promote_types(gradient.dtype, dtype)
    share = (gradient.to(wide) / group.size).to(dtype)
    all_reduce(share, group)
    return share.flatten().to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    ranks = len(gradients)
    roundings = ranks * torch.finfo(dtype).eps / 2
    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
    return terms.abs().sum(0) * roundings / (1 - roundings)
