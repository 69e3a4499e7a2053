"""mutant: bytes sent"""

import torch

from course_lib.comm import Group, exchange


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def passed_on(tensor: torch.Tensor) -> torch.Tensor:
        incoming = torch.empty_like(tensor)
        exchange(tensor, group.next, incoming, group.previous, group)
        return incoming

    scale, rows = q.shape[-1] ** -0.5, torch.arange(q.shape[2])
    future = rows[None, :] > rows[:, None]
    delta = (grad_out * out).sum(-1, keepdim=True)
    travel = torch.cat([q, grad_out, lse[..., None], delta, torch.zeros_like(q)], -1)
    width = q.shape[-1]
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for hop in range(group.size):
        source = (group.index - hop) % group.size
        if source >= group.index:
            theirs, grad, total, d, _ = travel.split([width, width, 1, 1, width], -1)
            p = (theirs @ k.mT * scale - total).exp()
            if source == group.index:
                p.masked_fill_(future, 0)
            ds = p * (grad @ v.mT - d) * scale
            travel[..., -width:] += ds @ k
            dk += ds.mT @ theirs
            dv += p.mT @ grad
        if group.size > 1:
            travel = passed_on(travel)
    return travel[..., -width:].contiguous(), dk, dv
