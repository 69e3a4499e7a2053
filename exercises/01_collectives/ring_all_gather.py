"""Ring all-gather from messages: every rank has one chunk, and all end with all of them.

Notebook 01. Chunks go round the ring: in each of N-1 steps every rank passes on to the next rank
the chunk that came in a step before, at first its own. After N-1 steps everybody has seen all.

Each rank sends every chunk but one: (N-1)/N·S bytes for equal chunks. It is the second half of the
ring all-reduce, and on its own what FSDP does to parameters (lesson 04).

Rules: chunks need not be equal, and may be empty. A receiver must know how many elements will come,
so everybody is told all sizes; to find them out would take another round of messages. The chunk
stays as it is; the result is a new tensor of the same dtype. A rank talks to its two neighbours on
the ring alone, one message a step: `group.index`, `group.next`, `group.previous`, `group.size`.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    """Collects the chunks of all members.

    Args:
        chunk: one row of `sizes[group.index]` elements; same dtype on every rank. Not changed.
        group: the ranks.
        sizes: elements of each member's chunk, in the order of their indices.

    Returns:
        All chunks in that order, one row of `sum(sizes)` elements.
    """
    raise NotImplementedError("ring_all_gather: write your answer here")
