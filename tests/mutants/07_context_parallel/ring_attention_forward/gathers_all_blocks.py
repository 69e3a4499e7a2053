"""mutant: the peak on 4 ranks, a block more for each rank"""

import torch

from course_lib.comm import Group, exchange


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = [torch.stack([k, v])]
    for _ in range(group.size - 1):
        blocks.append(torch.empty_like(blocks[0]))
        exchange(blocks[-2], group.next, blocks[-1], group.previous, group)
    order = [blocks[(group.index - source) % group.size] for source in range(group.size)]
    keys = torch.cat([block[0] for block in order], 2)
    values = torch.cat([block[1] for block in order], 2)
    places = torch.arange(keys.shape[2])
    rows = places.chunk(group.size)[group.index]
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp() @ values, lse
