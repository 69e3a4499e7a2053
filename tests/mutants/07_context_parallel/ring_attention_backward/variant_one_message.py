"""variant: all four in one message; autograd for each block; the other direction"""

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
    def walked(tensor: torch.Tensor) -> torch.Tensor:
        incoming = torch.empty_like(tensor)
        exchange(tensor, group.previous, incoming, group.next, group)
        return incoming

    places = torch.arange(q.shape[2])
    rows = places + group.index * len(places)
    delta = torch.einsum("bhtc,bhtc->bht", grad_out, out)
    dq = torch.zeros_like(q)
    travel = torch.stack([k, v, torch.zeros_like(k), torch.zeros_like(v)])
    for hop in range(group.size):
        source = (group.index + hop) % group.size
        seen = (places + source * len(places))[None, :] <= rows[:, None]
        if seen.any():
            keys, values, dk, dv = travel
            scores = torch.einsum("bhqc,bhkc->bhqk", q, keys) / q.shape[-1] ** 0.5
            p = (scores.masked_fill(~seen, -torch.inf) - lse.unsqueeze(-1)).exp()
            dp = torch.einsum("bhqc,bhkc->bhqk", grad_out, values)
            ds = p * (dp - delta.unsqueeze(-1)) / q.shape[-1] ** 0.5
            dq = dq + torch.einsum("bhqk,bhkc->bhqc", ds, keys)
            dk += torch.einsum("bhqk,bhqc->bhkc", ds, q)
            dv += torch.einsum("bhqk,bhqc->bhkc", p, grad_out)
        if hop < group.size - 1:
            travel = walked(travel)
    _, _, dk, dv = travel
    if group.size > 1:
        dk, dv = walked(dk), walked(dv)
    return dq, dk, dv
