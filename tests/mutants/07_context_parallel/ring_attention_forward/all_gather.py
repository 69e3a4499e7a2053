"""mutant: a collective was used, allgather"""

import torch

from course_lib.comm import Group, all_gather


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.stack([k, v]).contiguous()
    whole = both.new_empty(group.size * 2, *k.shape)
    all_gather(whole, both, group)
    keys, values = (torch.cat(list(whole[place::2]), 2) for place in range(2))
    places = torch.arange(keys.shape[2])
    rows = places.chunk(group.size)[group.index]
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp() @ values, lse
