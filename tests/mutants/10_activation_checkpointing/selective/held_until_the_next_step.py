"""mutant: bytes held after backward, it outlives its call"""

from collections import deque

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def keep_products(func):
    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class Mode(TorchDispatchMode):
    def __init__(self, way, kept, second):
        super().__init__()
        self.way, self.kept, self.second = way, kept, second

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        keep = self.way.policy(func)
        if keep and self.second:
            self.way.used.append(self.kept.popleft())
            return self.way.used[-1].clone()
        result = func(*args, **(kwargs or {}))
        if keep:
            self.kept.append(result.clone())
        if func._overloadpacket in flop_registry:
            self.way.count[self.second] += flop_registry[func._overloadpacket](
                *args, **(kwargs or {}), out_val=result
            )
        return result


class Selective:
    def __init__(self, policy=keep_products):
        self.policy, self.count, self.used = policy, [0, 0], []

    def __call__(self, fn, *args):
        kept = deque()
        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: (Mode(self, kept, False), Mode(self, kept, True)))

    @property
    def overhead(self):
        return self.count[1] / self.count[0]
