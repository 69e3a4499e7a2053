"""Ring all-reduce from messages: every rank ends with the sum, and no link carries more than 2S.

Notebook 01. Cut the tensor into N chunks and walk twice round the ring:

1. reduce-scatter, N-1 steps: send one chunk to the next rank, receive another from the previous
   one and add it to your own. Afterwards each rank holds one chunk that is reduced over all ranks.
2. all-gather, N-1 steps: pass the finished chunks on, until everybody has all of them.

Each rank sends 2(N-1)/N·S bytes, however many ranks there are.

Rules: change the tensor in place; it keeps its dtype and its memory. N need not divide its size,
and it may be a scalar, empty or non-contiguous. In each step, a rank sends one message to one
neighbour on the ring, always the same, and receives one from the other: `group.index`,
`group.next`, `group.previous`, `group.size`. When the function returns, every message has been
waited for, also those that were sent.
"""

import torch

from course_lib.comm import Group, exchange


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    """Reduces `tensor` over the group, in place.

    Args:
        tensor: any shape; same shape and dtype on every rank.
        group: the ranks.
        op: `sum`, `avg` or `max`.
    """
    # BEGIN SOLUTION
    data = tensor.contiguous().view(-1)
    chunks = list(data.tensor_split(group.size))
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        mine = chunks[taking % group.size]
        incoming = torch.empty_like(mine)
        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
        if op == "max":
            torch.maximum(mine, incoming, out=mine)
        else:
            mine += incoming
    for step in range(group.size - 1):
        giving, taking = group.index + 1 - step, group.index - step
        exchange(
            chunks[giving % group.size],
            group.next,
            chunks[taking % group.size],
            group.previous,
            group,
        )
    if op == "avg":
        data /= group.size
    if not tensor.is_contiguous():
        tensor.copy_(data.view(tensor.shape))
    # END SOLUTION
