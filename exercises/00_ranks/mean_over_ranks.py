"""The mean over ranks: each rank has a loss, and all of them want the mean.

Notebook 00. This is the smallest exercise of the course, about three lines. Each rank of the group
has a tensor, for instance the loss of its own batch. Return the mean over the ranks, element by
element, on every rank.

Rules:
- The result is a new tensor. The input keeps its value, since the caller still needs it.
- Only ranks of the group take part; `group.size` says how many there are.
- One all-reduce is enough; an answer that sends more bytes is not accepted.

`all_reduce(tensor, group)` of `course_lib.comm` replaces a tensor by the sum over the group.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


def mean_over_ranks(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The mean of the ranks' tensors.

    Args:
        tensor: this rank's values, floating-point. Shape (any) and dtype are the same on all ranks.
        group: the ranks that take part.

    Returns:
        The mean, a new tensor of the same shape and dtype.
    """
    raise NotImplementedError("mean_over_ranks: write your answer here")
