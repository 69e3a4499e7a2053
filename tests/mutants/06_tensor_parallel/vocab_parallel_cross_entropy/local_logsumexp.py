"""mutant: logits of ±10 000, is not finite, one reduction is missing"""

from typing import Any

import torch

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    own = logits_part.logsumexp(-1)
    local = targets - first
    mine = (local >= 0) & (local < logits_part.shape[-1])
    target = logits_part.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1)
    total = reduce_from_group(own.exp(), group)
    return total.log() - reduce_from_group(target.where(mine, 0), group)
