"""Wrong and right answers to `f_and_g`: see `course dev show f_and_g`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bf16_on_the_wire_as_float32", ["what g sends in forward"], '''
-        total = tensor.clone()
+        total = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
@@
-        return total
+        return total.to(tensor.dtype)
'''),
    Wrong("f_forgets_the_sum", ["this is the rank's own value: the sum over the ranks is missing", "f's backward must sum"], '''
-        total = grad.clone()
-        all_reduce(total, ctx.group)
-        return total, None
+        return grad, None
'''),
    Wrong("f_hooks_the_input", ["the gradient of a tensor that is used by f and elsewhere"], '''
-    return F.apply(tensor, group)
+    def summed(grad: torch.Tensor) -> torch.Tensor:
+        total = grad.clone()
+        all_reduce(total, group)
+        return total
+
+    if tensor.requires_grad:
+        tensor.register_hook(summed)
+    return tensor
'''),
    Wrong("f_means", ["the gradient of f's input", "this is the mean: it must be the sum"], '''
-        all_reduce(total, ctx.group)
+        all_reduce(total, ctx.group, "avg")
'''),
    Wrong("f_sums_in_both_passes", ["f's output", "this is the sum over the ranks: this pass only passes on what it gets", "the all-reduce belongs in the other pass"], '''
-        return tensor.view_as(tensor)
+        total = tensor.clone()
+        all_reduce(total, group)
+        return total
'''),
    Wrong("f_sums_the_gradient_in_place", ["the incoming gradient of f", "it was summed in place", "and others may use it"], '''
-        total = grad.clone()
-        all_reduce(total, ctx.group)
-        return total, None
+        all_reduce(grad, ctx.group)
+        return grad, None
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-        total = grad.clone()
+        total = grad.float()
+        total = total.clone() if total is grad else total
@@
-        return total, None
+        return total.to(grad.dtype), None
'''),
    Wrong("group_on_the_class", ["another group was used in between: keep the group on `ctx`"], '''
-        ctx.group = group
+        F.group = group
@@
-        all_reduce(total, ctx.group)
+        all_reduce(total, F.group)
'''),
    Wrong("g_leaves_the_graph", ["the output does not depend on the input in the autograd graph"], '''
-    return G.apply(tensor, group)
+    total = tensor.detach().clone()
+    all_reduce(total, group)
+    return total
'''),
    Wrong("g_means", ["g's output", "this is the mean: it must be the sum"], '''
-        all_reduce(total, group)
+        all_reduce(total, group, "avg")
'''),
    Wrong("g_means_the_gradient", ["the gradient of g's input", "this is the mean over the ranks"], '''
         """Returns the sum of all ranks' tensors."""
+        ctx.group = group
@@
-        return grad, None
+        total = grad.clone()
+        all_reduce(total, ctx.group, "avg")
+        return total, None
'''),
    Wrong("g_sums_in_both_passes", ["the gradient of g's input", "this is the sum over the ranks", "g's backward only passes on what it gets"], '''
         """Returns the sum of all ranks' tensors."""
+        ctx.group = group
@@
-        return grad, None
+        total = grad.clone()
+        all_reduce(total, ctx.group)
+        return total, None
'''),
    Wrong("g_sums_in_place", ["g's input after it", "it was summed in place: copy it first"], '''
-        total = tensor.clone()
-        all_reduce(total, group)
-        return total
+        all_reduce(tensor, group)
+        return tensor
'''),
    Wrong("gathers_and_adds", ["all_gather"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import all_gather
@@
-        all_reduce(total, group)
-        return total
+        every = total.new_empty(group.size, *total.shape)
+        all_gather(every, total, group)
+        return every.sum(0)
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, all_reduce
+import torch.distributed as dist
@@
-        total = tensor.clone()
-        all_reduce(total, group)
+        total = tensor.clone(memory_format=torch.contiguous_format)
+        dist.all_reduce(total, group=group.handle)
'''),
    Wrong("skips_the_first_rank", ["deadlock", "An all-reduce needs every rank of the group"], '''
-        all_reduce(total, group)
+        if group.index:
+            all_reduce(total, group)
'''),
    Wrong("sums_over_the_world", ["uses the group that it is given"], '''
-        all_reduce(total, ctx.group)
+        all_reduce(total, Group.world(ctx.group.ledger))
@@
-        all_reduce(total, group)
+        all_reduce(total, Group.world(group.ledger))
'''),
    Wrong("swapped", ["f's output", "this is the sum over the ranks: this pass only passes on", "g's output", "the sum over the ranks is missing"], '''
     """
+    return G.apply(tensor, group)
+
+
+def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
     return F.apply(tensor, group)
@@
-def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
-    """Adds up what the ranks have computed.
-
-    Args:
-        tensor: any shape, this rank's summand.
-        group: the ranks.
-
-    Returns:
-        The sum, the same on every rank.
-    """
-    return G.apply(tensor, group)
'''),
    Wrong("the_finished_pair", ["an import that this exercise does not allow: course_lib.comm.copy_to_group"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import copy_to_group, reduce_from_group
@@
-    return F.apply(tensor, group)
+    return copy_to_group(tensor, group)
@@
-    return G.apply(tensor, group)
+    return reduce_from_group(tensor, group)
'''),
]

RIGHT = [
    Right("variant_hook_and_detour", "no autograd functions, a hook on a view and a detached difference", '''
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
'''),
    Right("variant_ring", "the ring of lesson 01; nothing is sent in a group of one", '''
from typing import Any

import torch

from course_lib.comm import Group, ring_all_reduce


class F(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        total = grad.clone()
        ring_all_reduce(total, ctx.group)
        return total, None


class G(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        total = tensor.clone()
        if group.size > 1:
            ring_all_reduce(total, group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return F.apply(tensor, group)


def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return G.apply(tensor, group)
'''),
    Right("variant_setup_context", "the newer form with setup_context, asynchronous calls, the tensor itself returned", '''
from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class F(torch.autograd.Function):
    @staticmethod
    def forward(tensor: torch.Tensor, group: Group) -> torch.Tensor:
        return tensor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.group = inputs

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        total = grad.contiguous().clone()
        all_reduce(total, ctx.group, async_op=True).wait()
        return total, None


class G(torch.autograd.Function):
    @staticmethod
    def forward(tensor: torch.Tensor, group: Group) -> torch.Tensor:
        total = tensor.contiguous().clone()
        all_reduce(total, group, async_op=True).wait()
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


f = F.apply
g = G.apply
'''),
]
