"""mutant: called past course_lib.comm"""

import torch
import torch.distributed as dist

from course_lib.comm import Group


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    data = tensor.reshape(-1).clone()
    dist.all_reduce(data, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
    mine = data.tensor_split(group.size)[group.index]
    return mine / group.size if op == "avg" else mine
