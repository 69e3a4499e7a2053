"""variant: no autograd functions, a hook on a view and a detached difference"""

import torch

from course_lib.comm import Group, all_reduce


def summed(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    total = tensor.detach().clone()
    all_reduce(total, group)
    return total


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    view = tensor.view_as(tensor)
    if view.requires_grad:
        view.register_hook(lambda grad: summed(grad, group))
    return view


def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return tensor + (summed(tensor, group) - tensor).detach()
