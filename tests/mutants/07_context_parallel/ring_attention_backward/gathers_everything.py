"""mutant: a collective was used, the peak on 4 ranks"""

import torch

from course_lib.comm import Group, all_gather, all_reduce


def ring_attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    group: Group,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def whole(tensor: torch.Tensor) -> torch.Tensor:
        box = tensor.new_empty(group.size * tensor.shape[0], *tensor.shape[1:])
        all_gather(box, tensor.contiguous(), group)
        return torch.cat(box.chunk(group.size), 2)

    keys, values = whole(k).requires_grad_(), whole(v).requires_grad_()
    queries = q.detach().clone().requires_grad_()
    places = torch.arange(keys.shape[2])
    rows = places.chunk(group.size)[group.index]
    scores = queries @ keys.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(places[None, :] > rows[:, None], -torch.inf)
    dq, dk, dv = torch.autograd.grad(scores.softmax(-1) @ values, [queries, keys, values], grad_out)
    for grad in (dk, dv):
        all_reduce(grad, group)
    return dq, dk.chunk(group.size, 2)[group.index], dv.chunk(group.size, 2)[group.index]
