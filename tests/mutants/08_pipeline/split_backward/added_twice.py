"""mutant: autograd and the queue both add it"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear


def add(leaf: torch.nn.Parameter, grad: torch.Tensor) -> None:
    leaf.grad = grad if leaf.grad is None else leaf.grad + grad


class SplitLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, later: Any) -> torch.Tensor:
        ctx.kept = x, weight, bias, later
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, weight, bias, later = ctx.kept

        def weights_half() -> None:
            rows = dy.reshape(-1, dy.shape[-1])
            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
            if bias is not None:
                add(bias, rows.sum(0))

        later.append(weights_half)
        rows = dy.reshape(-1, dy.shape[-1])
        db = rows.sum(0) if bias is not None else None
        return dy @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), db, None


def split_linear(x: Any, weight: Any, bias: Any, later: list[Callable[[], None]]) -> torch.Tensor:
    return SplitLinear.apply(x, weight, bias, later)
