"""mutant: a collective was used: ring"""

import torch

from course_lib.comm import Group, ring_all_gather, ring_all_reduce, ring_reduce_scatter


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    data = tensor.contiguous().view(-1)
    mine = ring_reduce_scatter(data, node)
    ring_all_reduce(mine, between)
    ring_all_gather(data, node)
    tensor.copy_(data.view(tensor.shape))
