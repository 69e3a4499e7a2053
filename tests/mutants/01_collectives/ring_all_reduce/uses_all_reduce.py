"""mutant: a collective was used: allreduce"""

import torch

from course_lib import comm
from course_lib.comm import Group


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    comm.all_reduce(tensor, group, op)
