"""mutant: a collective was used: ring reduce_scatter"""

import torch

from course_lib import comm
from course_lib.comm import Group


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    comm.hierarchical_all_reduce(tensor, node, between)
