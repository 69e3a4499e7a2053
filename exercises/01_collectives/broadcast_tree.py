"""Broadcast by a binomial tree: whoever has the tensor passes it on, so the owners double.

Notebook 01. At first only the source has the tensor. In every round each rank that has it sends it
to one that has not: 1, 2, 4, 8, ... ranks have it after 0, 1, 2, 3, ... rounds, so ⌈log2 N⌉ rounds
are enough for N ranks. A loop in which the source sends to everybody takes N-1.

Rules: the tensor is filled in place and keeps its memory; any dtype and shape, also an empty and a
non-contiguous one (the messages take care of that). The source may be any index, and N any number,
not only a power of two. Each rank but the source receives once, the source never. Peers are indices
in the group: `group.index`, `group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    """Copies the source's tensor to all members, in place.

    Args:
        tensor: same shape and dtype on every rank; on the source what is sent, elsewhere filled.
        source: index in the group of the rank that has it.
        group: the ranks.
    """
    raise NotImplementedError("broadcast_tree: write your answer here")
