"""Ring reduce-scatter from messages: the sum of all ranks' tensors, one chunk of it on each rank.

Notebook 01. Cut the tensor into N chunks. In each of N-1 steps every rank sends one chunk to the
next rank and receives another from the previous one, to which it adds its own. A chunk collects the
ranks' summands on its way round, and is complete when it arrives at its owner: rank i owns chunk i.

Each rank sends every chunk but its own once: (N-1)/N·S bytes. This is the first half of the ring
all-reduce; on its own, it is what ZeRO does to gradients (lesson 04).

Rules: chunks are cut as `torch.Tensor.tensor_split` cuts the flattened tensor into `group.size`
parts, so they may differ in size, and may be empty. The chunk keeps the tensor's dtype. `tensor`
may be overwritten: nobody reads it afterwards. In each step, a rank sends one message to one
neighbour on the ring, always the same, and receives one from the other: `group.index`,
`group.next`, `group.previous`, `group.size`. When the function returns, every message has been
waited for, also those that were sent.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    """Reduces `tensor` over the group; each rank gets the chunk that it owns.

    Args:
        tensor: any shape, also non-contiguous; same shape and dtype on every rank. May be
            overwritten.
        group: the ranks.
        op: `sum`, `avg` or `max`.

    Returns:
        Chunk `group.index` of the result, one dimension.
    """
    raise NotImplementedError("ring_reduce_scatter: write your answer here")
