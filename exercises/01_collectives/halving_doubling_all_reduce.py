"""All-reduce by halving and doubling: as few bytes as the ring, in 2·log2 N rounds.

Notebook 01. Let N be a power of two. A rank and its partner `index ^ distance` cut the tensor in
two: each sends the half that it gives away, and adds what it receives to the half that it keeps.
Each goes on with its half in the same way, with a partner at another distance, then with a quarter,
until each rank has one chunk that is summed over all ranks. Then everything runs backwards:
partners exchange the parts that are complete, one chunk, two, four, until both have the whole
tensor.

Halving sends S/2 + S/4 + ... = (N-1)/N·S bytes in log2 N rounds, and doubling the same again.

If N is not a power of two, some ranks are left over. Let 2^k be the largest power of two up to N.
Each rank with index 2^k or more sends its tensor to another rank, which adds it to its own, takes
part for both, and sends the result back: two more rounds, in which each of the two sends S bytes.

Rules: change the tensor in place; it keeps its dtype and its memory. It may have any number of
elements, so halves may differ by one, and may be non-contiguous. When the function returns, every
message has been waited for, also those that were sent. Peers are indices in the group:
`group.index`, `group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    """Sums `tensor` over the group, in place.

    Args:
        tensor: any shape; same shape and dtype on every rank.
        group: the ranks; any number.
    """
    raise NotImplementedError("halving_doubling_all_reduce: write your answer here")
