"""variant: each term is rounded by the division, the cast and N-1 additions, with room"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    wide = torch.promote_types(gradient.dtype, dtype)
    share = (gradient.to(wide) / group.size).to(dtype)
    all_reduce(share, group)
    return share.to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    u, ranks = torch.finfo(dtype).eps / 2, len(gradients)
    total = torch.zeros(gradients[0].shape, dtype=torch.float64)
    for gradient in gradients:
        total += gradient.double().abs() / ranks
    return total * ((1 + u) ** (ranks + 0.5) - 1)
