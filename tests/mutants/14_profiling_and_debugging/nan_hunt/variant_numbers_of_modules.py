"""variant: one number holds the place, the module, the pass and the rank; a class watches"""

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from course_lib.comm import Group, all_reduce


class Watch:
    def __init__(self, model):
        self.clock, self.found, self.handles = 0, None, []
        for number, module in enumerate(model.modules()):
            self.handles += [
                module.register_forward_hook(self.forward(number)),
                module.register_full_backward_hook(self.backward(number)),
            ]

    def bad(self, tree):
        return any(not t.isfinite().all() for t in tree_leaves(tree) if torch.is_tensor(t))

    def note(self, number, way, given, made):
        self.clock += 1
        if self.found is None and self.bad(made) and not self.bad(given):
            self.found = (self.clock, number, way)

    def forward(self, number):
        return lambda _, given, made: self.note(number, 0, given, made)

    def backward(self, number):
        return lambda _, made, given: self.note(number, 1, given, made)


def hunt(model: nn.Module, inputs: tuple[torch.Tensor, ...], group: Group):
    names = [name for name, _ in model.named_modules()] + ["inputs"]
    watch = Watch(model)
    if watch.bad(inputs):
        watch.found = (0, len(names) - 1, 0)
    try:
        model(*inputs).backward()
    finally:
        for handle in watch.handles:
            handle.remove()
    clock, number, way = watch.found or (1 << 20, 0, 0)
    code = ((clock * group.size + group.index) * len(names) + number) * 2 + way
    tensor = torch.tensor([code])
    all_reduce(tensor, group, "min")
    rest, way = divmod(tensor.item(), 2)
    rest, number = divmod(rest, len(names))
    clock, index = divmod(rest, group.size)
    if clock == 1 << 20:
        return None
    return group.ranks[index], names[number], ("forward", "backward")[way]
