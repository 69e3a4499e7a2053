"""mutant: a collective was used: pairwise all_to_all"""

import torch

from course_lib.comm import Group, pairwise_all_to_all


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    pairwise_all_to_all(outputs, inputs, group)
