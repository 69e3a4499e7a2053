"""mutant: a collective was used: halving-doubling all_reduce"""

import torch

from course_lib import comm
from course_lib.comm import Group


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    comm.halving_doubling_all_reduce(tensor, group)
