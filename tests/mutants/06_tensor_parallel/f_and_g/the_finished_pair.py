"""mutant: the list of the library's functions in the graph"""

import torch

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group, reduce_from_group


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return copy_to_group(tensor, group)


def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return reduce_from_group(tensor, group)
