"""Ring all-gather from messages: every rank has one chunk, and in the end all have all.

Notebook 01. Chunks go round the ring: in each of N-1 steps, every rank passes on to the next rank
the chunk that arrived in the step before; in the first step it sends its own. After N-1 steps every
rank has received all chunks.

Each rank sends every chunk but one: (N-1)/N·S bytes for equal chunks. This is the second half of
the ring all-reduce; on its own, it is what FSDP does to parameters (lesson 04).

Rules: chunks may have different sizes, and may be empty. A receiver must know how many elements to
expect, so every rank gets the sizes of all chunks. The chunk must not be changed; the result is a
new tensor of the same dtype, even if the group has one rank. In each step, a rank sends one message
to one neighbour on the ring, always the same, and receives one from the other: `group.index`,
`group.next`, `group.previous`, `group.size`. When the function returns, every message has been
waited for, also those that were sent.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    """Collects the chunks of all members.

    Args:
        chunk: one dimension, `sizes[group.index]` elements; same dtype on every rank. Not changed.
        group: the ranks.
        sizes: the number of elements of each member's chunk, in the order of their indices.

    Returns:
        All chunks in that order, one dimension, `sum(sizes)` elements.
    """
    raise NotImplementedError("ring_all_gather: write your answer here")
