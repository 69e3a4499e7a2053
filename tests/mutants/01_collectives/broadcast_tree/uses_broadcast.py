"""mutant: a collective was used: broadcast"""

import torch

from course_lib import comm
from course_lib.comm import Group


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    comm.broadcast(tensor, source, group)
