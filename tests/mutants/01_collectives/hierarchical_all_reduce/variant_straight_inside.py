"""variant: inside the node straight to the owner, between nodes the ring"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, exchange


def ring_pass(chunks: Sequence[torch.Tensor], first: int, group: Group, adds: bool) -> None:
    for step in range(group.size - 1):
        giving, taking = (first - step) % group.size, (first - step - 1) % group.size
        incoming = torch.empty_like(chunks[taking])
        exchange(chunks[giving], group.next, incoming, group.previous, group)
        chunks[taking].copy_(chunks[taking] + incoming if adds else incoming)


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    data = tensor.reshape(-1).clone()
    parts = data.tensor_split(node.size)
    peers = [((node.index + s) % node.size, (node.index - s) % node.size) for s in range(1, node.size)]
    mine = parts[node.index].clone()
    for to, source in peers:
        incoming = torch.empty_like(mine)
        exchange(parts[to], to, incoming, source, node)
        mine += incoming
    pieces = mine.tensor_split(between.size)
    ring_pass(pieces, between.index - 1, between, True)
    ring_pass(pieces, between.index, between, False)
    parts[node.index].copy_(mine)
    for to, source in peers:
        exchange(mine, to, parts[source], source, node)
    tensor.copy_(data.view(tensor.shape))
