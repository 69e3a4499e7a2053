"""variant: gradients of the own block wait at home, so dk and dv make N-1 hops"""

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

    scale = q.shape[-1] ** -0.5
    delta = (grad_out * out).sum(-1, keepdim=True)

    def part(block: torch.Tensor, own: bool) -> tuple[torch.Tensor, torch.Tensor]:
        p = (q @ block[0].mT * scale - lse[..., None]).exp()
        p = p.tril() if own else p
        ds = p * (grad_out @ block[1].mT - delta) * scale
        return ds @ block[0], torch.stack([ds.mT @ q, p.mT @ grad_out])

    block = torch.stack([k, v])
    dq, home = part(block, True)
    grads = torch.zeros_like(home)
    for hop in range(1, group.size):
        block = passed_on(block)
        if hop > 1:
            grads = passed_on(grads)
        if hop <= group.index:
            more, theirs = part(block, False)
            dq, grads = dq + more, grads + theirs
    if group.size > 1:
        home += passed_on(grads)
    return dq, *home
