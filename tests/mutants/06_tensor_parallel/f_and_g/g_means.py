"""mutant: g's output, this is the mean: it is a sum"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class F(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        total = grad.clone()
        all_reduce(total, ctx.group)
        return total, None


class G(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        total = tensor.clone()
        all_reduce(total, group, "avg")
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return F.apply(tensor, group)


def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return G.apply(tensor, group)
