"""Wrong and right answers to `nan_hunt`: see `course dev show nan_hunt`."""

from course_lib.grade.author.answers import Right, Wrong

SAME = ["world_size_for_size"]  # the stride in a number; any that is as large as the group will do

WRONG = [
    Wrong("backward_the_other_way", ["the backward", "nothing was found"], '''
-                lambda _, result, given, name=name: look(name, "backward", given, result)
+                lambda _, given, result, name=name: look(name, "backward", given, result)
'''),
    Wrong("batch_not_looked_at", ["the batch itself is bad"], '''
-    look("inputs", "forward", (), inputs)
'''),
    Wrong("blames_the_fed", ["its input was bad already"], '''
-        if finite(given) and not finite(result):
+        if not finite(result):
'''),
    Wrong("conditional_collective", ["deadlock", "all_reduce"], '''
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
+    if made:
+        all_reduce(first, group, "min")
'''),
    Wrong("removes_all_hooks", ["hooks that were there before were removed"], '''
-    for hook in hooks:
-        hook.remove()
+    for module in model.modules():
+        module._forward_hooks.clear()
+        module._backward_hooks.clear()
'''),
    Wrong("runs_twice", ["the number of forwards"], '''
     look("inputs", "forward", (), inputs)
+    model(*inputs)
'''),
    Wrong("mends_the_batch", ["the number of batches that were changed"], '''
-    loss = model(*inputs)
+    if made:
+        inputs[0].data.nan_to_num_(3.0)
+    loss = model(*inputs)
'''),
    Wrong("none_is_a_tensor", ["NoneType"], '''
-        return all(bool(t.isfinite().all()) for t in tensors if t is not None)
+        return all(bool(t.isfinite().all()) for t in tensors)
'''),
    Wrong("last_name", ["model.named_modules() has the first"], '''
-    for name, module in model.named_modules():
+    names = {module: name for name, module in model.named_modules(remove_duplicate=False)}
+    for module, name in names.items():
'''),
    Wrong("looks_once", ["is looked at twice"], '''
-        if finite(given) and not finite(result):
+        if (name, way) in seen:
+            return
+        if finite(given) and not finite(result):
'''),
    Wrong("alone_without_a_collective", ["in a world of 1"], '''
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
+    if group.size > 1:
+        all_reduce(first, group, "min")
'''),
    Wrong("far_too_many_numbers", ["the bytes that a rank contributes"], '''
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
+    wide = first.repeat(16)
+    all_reduce(wide, group, "min")
+    first = wide[0]
'''),
    Wrong("first_of_a_tuple", ["a tuple has several tensors"], '''
-        tensors = values if isinstance(values, tuple) else (values,)
+        tensors = values[:1] if isinstance(values, tuple) else (values,)
'''),
    Wrong("forgets_infinity", ["an infinity counts as well"], '''
-        return all(bool(t.isfinite().all()) for t in tensors if t is not None)
+        return all(not t.isnan().any() for t in tensors if t is not None)
'''),
    Wrong("highest_rank_wins", ["equally early ranks: the lowest of them is meant"], '''
-    first = torch.tensor(min(made, default=never) * group.size + group.index, device=group.device)
+    first = torch.tensor(min(made, default=never) * group.size + group.size - 1 - group.index, device=group.device)
@@
     number, index = divmod(int(first), group.size)
+    index = group.size - 1 - index
'''),
    Wrong("hooks_stay", ["hooks that were left on modules"], '''
-    for hook in hooks:
-        hook.remove()
'''),
    Wrong("last_not_first", ["the first call counts"], '''
-    first = torch.tensor(min(made, default=never) * group.size + group.index, device=group.device)
+    first = torch.tensor((made[-1] if made else never) * group.size + group.index, device=group.device)
'''),
    Wrong("layers_only", ["blocks.1 multiplies by infinity", "nothing was found"], '''
     for name, module in model.named_modules():
+        if list(module.children()):
+            continue
'''),
    Wrong("lowest_rank_first", ["the lowest rank with a bad value", "but another rank was earlier"], '''
-    if not made:
-        loss.backward()
+    loss.backward()
@@
-    never = 1 << 40
-    first = torch.tensor(min(made, default=never) * group.size + group.index, device=group.device)
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
-    number, index = divmod(int(first), group.size)
-    return None if number == never else (group.ranks[index], *seen[number])
+    codes = torch.full((group.size,), -1)
+    if made:
+        codes[group.index] = made[0]
+    all_reduce(codes, group, "max")
+    for index, number in enumerate(codes.tolist()):
+        if number >= 0:
+            return (group.ranks[index], *seen[number])
+    return None
'''),
    Wrong("names_bound_late", ["the answer where"], '''
-                lambda _, given, result, name=name: look(name, "forward", given, result)
+                lambda _, given, result: look(name, "forward", given, result)
@@
-                lambda _, result, given, name=name: look(name, "backward", given, result)
+                lambda _, result, given: look(name, "backward", given, result)
'''),
    Wrong("names_travel", ["a few numbers are enough"], '''
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
+    text = torch.zeros(group.size, 512, dtype=torch.int64)
+    text[group.index] = first
+    all_reduce(text, group)
+    first = text[:, 0].min()
'''),
    Wrong("no_backward", ["the backward", "nothing was found"], '''
-    if not made:
-        loss.backward()
'''),
    Wrong("own_answer", ["this rank's own answer"], '''
-    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
'''),
    Wrong("sends_every_call", ["one for each fact"], '''
     all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
+    all_reduce(torch.zeros(1), group)
+    all_reduce(torch.zeros(1), group)
'''),
]

RIGHT = [
    Right("variant_numbers_of_modules", "one number holds the place, the module, the pass and the rank; a class watches", '''
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
'''),
    Right("variant_one_row_for_each_rank", "an all-gather of three numbers a rank", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_gather


def hunt(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], group: Group
) -> tuple[int, str, str] | None:
    """Runs one step and finds who made its first bad value.

    Args:
        model: returns the loss, a scalar; the same modules on every rank.
        inputs: this rank's batch; tensors of floats require a gradient.
        group: the replicas.

    Returns:
        The rank, the module's name as in `model.named_modules()`, and `forward` or `backward`; None
        if every value on every rank was finite. The same on all ranks.
    """
    seen: list[tuple[str, str]] = []  # everything that ended, in order: the same on all ranks
    made: list[int] = []  # the numbers of those that made a bad value

    def finite(values: Any) -> bool:
        tensors = values if isinstance(values, tuple) else (values,)
        return all(bool(t.isfinite().all()) for t in tensors if t is not None)

    def look(name: str, way: str, given: Any, result: Any) -> None:
        if finite(given) and not finite(result):
            made.append(len(seen))
        seen.append((name, way))

    look("inputs", "forward", (), inputs)
    hooks = []
    for name, module in model.named_modules():
        hooks.append(
            module.register_forward_hook(
                lambda _, given, result, name=name: look(name, "forward", given, result)
            )
        )
        hooks.append(
            module.register_full_backward_hook(
                lambda _, result, given, name=name: look(name, "backward", given, result)
            )
        )
    loss = model(*inputs)
    if not made:
        loss.backward()
    for hook in hooks:
        hook.remove()
    mine = torch.tensor(made[:1] or [1 << 40])
    every = torch.empty(group.size, dtype=torch.int64)
    all_gather(every, mine, group)
    number, index = min((number, index) for index, number in enumerate(every.tolist()))
    return None if number == 1 << 40 else (group.ranks[index], *seen[number])
'''),
]
