"""mutant: a collective was used: tree broadcast"""

import torch

from course_lib.comm import Group, tree_broadcast


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    tree_broadcast(tensor, source, group)
