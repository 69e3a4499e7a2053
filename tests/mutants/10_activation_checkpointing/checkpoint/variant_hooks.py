"""variant: one backward, with slots in the place of saved tensors"""

import torch
from torch.autograd.graph import saved_tensors_hooks


def checkpoint(fn, *args):
    if not torch.is_grad_enabled():
        return fn(*args)
    state, on = torch.get_rng_state(), torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu")
    needed = [isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args]
    held = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
    count, filled = [0], {}

    def pack(tensor):
        count[0] += 1
        return count[0] - 1

    def fill(tensor):
        filled[len(filled)] = tensor.detach()
        return tensor.detach()

    def unpack(slot):
        if slot not in filled:
            filled.clear()
            new = [a.detach().requires_grad_() if n else a for a, n in zip(held, needed)]
            now = torch.get_rng_state()
            torch.set_rng_state(state)
            with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
                with saved_tensors_hooks(fill, lambda tensor: tensor):
                    fn(*new)
            torch.set_rng_state(now)
        left[slot] = True
        value = filled[slot]
        if len(left) == count[0]:
            filled.clear()
            left.clear()
        return value

    left = {}
    with saved_tensors_hooks(pack, unpack):
        return fn(*args)
