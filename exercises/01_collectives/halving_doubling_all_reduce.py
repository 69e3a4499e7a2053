"""All-reduce by halving and doubling: as few bytes as the ring, in 2·log2 N rounds.

Notebook 01. Let N be a power of two. A rank and its partner `index ^ distance` cut the tensor in
two: each sends the half that it gives away, and adds what it receives to the half that it keeps.
With the kept half they go on in the same way with partners at another distance, then with a
quarter, until each has one chunk that is summed over all. Then everything backwards: partners
exchange what they have complete, a chunk, two, four, until both have the whole tensor.

Halving sends S/2 + S/4 + ... = (N-1)/N·S bytes in log2 N rounds, and doubling the same again.

Where N is not a power of two, some ranks are left over: let 2^k be the largest power of two in N.
Each rank from index 2^k on hands its tensor to another one, which adds it to its own, takes part
for both, and sends the result back: two rounds and S bytes more.

Rules: the tensor is changed in place and keeps its dtype; any number of elements, so halves may
differ by one; a non-contiguous tensor works as well. Peers are indices in the group: `group.index`,
`group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    """Sums `tensor` over the group, in place.

    Args:
        tensor: any shape; same shape and dtype on every rank.
        group: the ranks, as many as you like.
    """
    raise NotImplementedError("halving_doubling_all_reduce: write your answer here")
