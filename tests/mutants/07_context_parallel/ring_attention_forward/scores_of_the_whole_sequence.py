"""mutant: the peak on 4 ranks, t×S or S×S"""

import torch

from course_lib.comm import Group, exchange


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    def walk(part: torch.Tensor):
        for hop in range(group.size):
            yield (group.index - hop) % group.size, part
            if hop < group.size - 1:
                incoming = torch.empty_like(part)
                exchange(part, group.next, incoming, group.previous, group)
                part = incoming

    length = q.shape[2]
    rows = torch.arange(length) + group.index * length
    scores = q.new_full((*q.shape[:3], group.size * length), -torch.inf)
    for source, keys in walk(k):
        places = torch.arange(length) + source * length
        future = places[None, :] > rows[:, None]
        columns = slice(source * length, (source + 1) * length)
        scores[..., columns] = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill_(future, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = scores.sub_(lse[..., None]).exp_().split(length, -1)
    out = torch.zeros_like(q)
    for source, values in walk(v):
        out += weights[source] @ values
    return out, lse
