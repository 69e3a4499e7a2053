"""mutant: called past course_lib.comm"""

import torch
import torch.distributed as dist

from course_lib.comm import Group


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    data = tensor.contiguous()
    dist.broadcast(data, group.ranks[source])
    tensor.copy_(data)
