"""Broadcast by a binomial tree: all ranks that have the tensor pass it on, so their number doubles.

Notebook 01. At first only the source has the tensor. In every round, each rank that has it sends it
to one that does not: 1, 2, 4, 8, ... ranks have it after 0, 1, 2, 3, ... rounds, so ⌈log2 N⌉ rounds
are enough for N ranks. A loop in which the source sends to all others takes N-1 rounds.

Rules: fill the tensor in place; it keeps its memory. It may have any dtype and shape, and may be
empty or non-contiguous (the messages take care of that). The source may have any index, and N need
not be a power of two. Each rank except the source receives once, and the source never. When the
function returns, every message has been waited for, also those that were sent. Peers are indices in
the group: `group.index`, `group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    """Copies the source's tensor to all members, in place.

    Args:
        tensor: same shape and dtype on every rank. Sent by the source, filled on all other ranks.
        source: the index in the group of the rank that has the values.
        group: the ranks.
    """
    raise NotImplementedError("broadcast_tree: write your answer here")
