"""mutant: returns a gradient for each tensor"""

from collections.abc import Callable
from typing import Any

import torch


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, token: torch.Tensor, fn: Callable[..., torch.Tensor], *args: Any
    ) -> torch.Tensor:
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.autocast = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        ctx.places = [i for i, arg in enumerate(args) if torch.is_tensor(arg)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        ctx.args = [None if torch.is_tensor(arg) else arg for arg in args]
        return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        args, outside = list(ctx.args), torch.get_rng_state()
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = tensor.detach()
        dtype, on = ctx.autocast
        torch.set_rng_state(ctx.state)
        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
            output = ctx.fn(*args)
        torch.set_rng_state(outside)
        torch.autograd.backward(output, grads[0])
        return None, None, *(arg.grad if torch.is_tensor(arg) else None for arg in args)


def checkpoint(fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
    return output
