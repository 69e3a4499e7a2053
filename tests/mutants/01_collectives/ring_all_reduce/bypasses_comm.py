"""mutant: torch"""

import torch
import torch.distributed as dist

from course_lib.comm import Group


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    dist.all_reduce(tensor, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
    if op == "avg":
        tensor /= group.size
