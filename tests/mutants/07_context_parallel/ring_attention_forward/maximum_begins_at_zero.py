"""mutant: scores of some thousands, infinity minus infinity"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.arange(q.shape[2])
    future = rows[None, :] > rows[:, None]
    out, total = torch.zeros_like(q), torch.zeros_like(q[..., :1])
    most = torch.zeros_like(total)
    block = torch.stack([k, v])
    for hop in range(group.size):
        source = (group.index - hop) % group.size
        works = []
        if hop < group.size - 1:
            incoming = torch.empty_like(block)
            works.append(irecv(incoming, group.previous, group))
            works.append(isend(block, group.next, group))
        if source <= group.index:
            scores = q @ block[0].mT / q.shape[-1] ** 0.5
            if source == group.index:
                scores.masked_fill_(future, -torch.inf)
            now = torch.maximum(most, scores.amax(-1, keepdim=True))
            weights = (scores - now).exp()
            out = out * (most - now).exp() + weights @ block[1]
            total = total * (most - now).exp() + weights.sum(-1, keepdim=True)
            most = now
        for work in works:
            work.wait()
        if works:
            block = incoming
    return out / total, (most + total.log())[..., 0]
