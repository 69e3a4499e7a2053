"""All-reduce on two levels: most bytes stay on the fast links inside a node.

Notebook 01. There are n nodes of g ranks. Inside a node the links are fast, between nodes slow, and
every rank has its own network card. A rank is in two groups: `node`, the g ranks of its node, and
`between`, the n ranks that have its place in their nodes. Arrange passes on these two groups so
that all ranks end with the sum over all n·g, and each sends to other nodes no more than
2(n-1)/n·S/g bytes: the all-reduce of one chunk of S/g. Inside the node it sends 2(g-1)/g·S.

Rules: the tensor is changed in place and keeps its dtype; sizes need not divide; a non-contiguous
tensor works as well; a node may have one rank, and there may be one node. `ring_pass` below is what
you wrote for the ring: use it or not, and change it as you like. Peers are indices in the group
that the message is sent in.

Your answer may use `comm.Group`, `comm.Work`, `comm.send`, `comm.recv`, `comm.isend`, `comm.irecv`
and `comm.exchange` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, exchange


def ring_pass(chunks: Sequence[torch.Tensor], first: int, group: Group, adds: bool) -> None:
    """N-1 steps round the ring of `group`, in place.

    Args:
        chunks: one a member.
        first: index of the chunk that this rank sends in the first step, modulo N; then it passes
            on what it has received. The last to arrive is chunk `first + 1`.
        group: the ranks of the ring.
        adds: whether a chunk that arrives is added to this rank's, or replaces it.
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
        between: the ranks of the same index in every node.
    """
    raise NotImplementedError("hierarchical_all_reduce: write your answer here")
