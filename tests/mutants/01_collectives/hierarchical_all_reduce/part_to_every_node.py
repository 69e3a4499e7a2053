"""mutant: let it go round in pieces"""

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
    data = tensor.contiguous().view(-1)
    parts = data.tensor_split(node.size)
    ring_pass(parts, node.index - 1, node, adds=True)
    mine = parts[node.index].clone()
    for step in range(1, between.size):
        to, source = (between.index + step) % between.size, (between.index - step) % between.size
        incoming = torch.empty_like(mine)
        exchange(mine, to, incoming, source, between)
        parts[node.index].add_(incoming)
    ring_pass(parts, node.index, node, adds=False)
    tensor.copy_(data.view(tensor.shape))
