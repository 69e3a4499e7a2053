"""mutant: the full logits were gathered"""

import torch
from torch.nn import functional

from course_lib.comm import Group, all_reduce
from course_lib.comm.autograd import reduce_from_group


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    end = targets.new_tensor([first + logits_part.shape[-1]])
    all_reduce(end, group, "max")
    room = (first, int(end) - first - logits_part.shape[-1])
    logits = reduce_from_group(functional.pad(logits_part, room), group)
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return loss.view_as(targets)
