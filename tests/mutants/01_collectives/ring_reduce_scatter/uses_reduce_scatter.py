"""mutant: a collective was used: ring reduce_scatter"""

import torch

from course_lib import comm
from course_lib.comm import Group


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    return comm.ring_reduce_scatter(tensor, group, op)
