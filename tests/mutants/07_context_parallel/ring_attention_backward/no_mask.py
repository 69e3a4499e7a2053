"""mutant: the diagonal block needs a mask"""

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
    dq, block = torch.zeros_like(q), torch.stack([k, v])
    grads = torch.zeros_like(block)
    for hop in range(group.size):
        source = (group.index - hop) % group.size
        if True:
            p = (q @ block[0].mT * scale - lse[..., None]).exp()
            ds = p * (grad_out @ block[1].mT - delta) * scale
            dq += ds @ block[0]
            grads[0] += ds.mT @ q
            grads[1] += p.mT @ grad_out
        if hop < group.size - 1:
            block = passed_on(block)
        if group.size > 1:
            grads = passed_on(grads)
    return dq, grads[0], grads[1]
