"""All-reduce on two levels: most bytes stay on the fast links inside a node.

Notebook 01. There are n nodes of g ranks. Links are fast inside a node and slow between nodes, and
every rank has its own network card. A rank is in two groups: `node`, the g ranks of its node, and
`between`, the n ranks in the same place of their nodes. Combine passes over these two groups so
that all ranks end with the sum over all n·g ranks, and each sends at most 2(n-1)/n·S/g bytes to
other nodes: the all-reduce of one chunk of S/g. Inside the node it sends 2(g-1)/g·S bytes.

Rules: change the tensor in place; it keeps its dtype and its memory. g and n need not divide its
size, and it may be non-contiguous. A node may have only one rank, and there may be only one node.
`ring_pass` below does what you wrote for the ring: you may use it, change it, or ignore it. When
the function returns, every message has been waited for, also those that were sent. Peers are
indices in the group in which the message is sent.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, exchange


def ring_pass(chunks: Sequence[torch.Tensor], first: int, group: Group, adds: bool) -> None:
    """Makes N-1 steps round the ring of `group`, in place.

    Args:
        chunks: one for each member.
        first: the index, modulo N, of the chunk that this rank sends in the first step. After that
            it passes on what it has received. The last chunk to arrive is `first + 1`.
        group: the ranks of the ring.
        adds: True if a chunk that arrives is added to this rank's, False if it replaces it.
    """
    for step in range(group.size - 1):
        giving, taking = (first - step) % group.size, (first - step - 1) % group.size
        incoming = torch.empty_like(chunks[taking])
        exchange(chunks[giving], group.next, incoming, group.previous, group)
        chunks[taking].copy_(chunks[taking] + incoming if adds else incoming)


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    """Sums `tensor` over all ranks of all nodes, in place.

    Args:
        tensor: any shape; same shape and dtype on every rank.
        node: the ranks of this rank's node.
        between: the ranks with the same index in every node.
    """
    raise NotImplementedError("hierarchical_all_reduce: write your answer here")
