"""variant: one autograd function; the all-reduce runs while the weight's gradient is computed"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group, all_reduce


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, group: Group) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dx = (grad @ weight).contiguous()
        work = all_reduce(dx, ctx.group, async_op=True)
        dw = torch.einsum("...o,...i->oi", grad, x)
        db = torch.einsum("...o->o", grad)
        work.wait()
        return dx, dw, db if ctx.needs_input_grad[2] else None, None


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.bias = None
        if full.bias is not None:
            own = full.bias.tensor_split(group.size)[group.index]
            self.bias = nn.Parameter(own.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Layer.apply(x, self.weight, self.bias, self.group)
