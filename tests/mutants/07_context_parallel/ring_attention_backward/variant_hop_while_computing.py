"""variant: k and v are under way while the block is used; dk and dv in messages of their own"""

import torch

from course_lib.comm import Group, exchange, irecv, isend


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale, length = q.shape[-1] ** -0.5, q.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    delta = (grad_out * out).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    keys, values = k.contiguous(), v.contiguous()
    for hop in range(group.size):
        works, last = [], hop == group.size - 1
        if not last:
            boxes = torch.empty_like(keys), torch.empty_like(values)
            works = [irecv(box, group.previous, group) for box in boxes]
            works += [isend(thing, group.next, group) for thing in (keys, values)]
        if hop <= group.index:
            p = torch.exp(q @ keys.mT * scale - lse[..., None])
            if hop == 0:
                p = torch.where(seen, p, 0)
            ds = p * (grad_out @ values.mT - delta)
            dq = dq + scale * (ds @ keys)
            dk = dk + scale * (ds.mT @ q)
            dv = dv + p.mT @ grad_out
        for work in works:
            work.wait()
        if works:
            keys, values = boxes
        if group.size > 1:
            boxes = torch.empty_like(dk), torch.empty_like(dv)
            for thing, box in zip((dk, dv), boxes):
                exchange(thing, group.next, box, group.previous, group)
            dk, dv = boxes
    return dq, dk, dv
