"""variant: the function is made for each call, and everything is in its closure"""

import torch


def checkpoint(fn, *args):
    state, on = torch.get_rng_state(), torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu")
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, token, *given):
            ctx.save_for_backward(*given)
            return fn(*args)

        @staticmethod
        def backward(ctx, grad):
            copies = [t.detach().clone() for t in ctx.saved_tensors]
            for copy, needed in zip(copies, ctx.needs_input_grad[1:], strict=True):
                copy.requires_grad_(needed)
            rest = iter(copies)
            new = [next(rest) if isinstance(arg, torch.Tensor) else arg for arg in args]
            now = torch.get_rng_state()
            torch.set_rng_state(state)
            try:
                with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
                    output = fn(*new)
            finally:
                torch.set_rng_state(now)
            output.backward(grad)
            return None, *(copy.grad for copy in copies)

    return Again.apply(torch.zeros(1, requires_grad=True), *tensors)
