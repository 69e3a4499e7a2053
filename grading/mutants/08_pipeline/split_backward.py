"""Wrong and right answers to `split_backward`: see `course dev show split_backward`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("sum_at_once", ["the sum for the bias is computed there too"], '''
         def weights_half() -> None:
-            rows = dy.reshape(-1, dy.shape[-1])
@@
-                add(bias, rows.sum(0))
+                add(bias, total)
@@
+        rows = dy.reshape(-1, dy.shape[-1])
+        total = rows.sum(0)
         later.append(weights_half)
'''),
    Wrong("gradients_with_graphs", ["have graphs of their own", "under `torch.no_grad()`"], '''
-        @torch.no_grad()  # else the gradients' graphs would hold x and dy
'''),
    Wrong("two_dims_at_least", ["Dimension out of range", "flatten(0, -2)"], '''
-            rows = dy.reshape(-1, dy.shape[-1])
-            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
+            rows = dy.flatten(0, -2)
+            add(weight, rows.t() @ x.flatten(0, -2))
'''),
    Wrong("contiguous_only", ["view size is not compatible"], '''
-            rows = dy.reshape(-1, dy.shape[-1])
-            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
+            rows = dy.view(-1, dy.shape[-1])
+            add(weight, rows.t() @ x.view(-1, x.shape[-1]))
'''),
    Wrong("holds_for_ever", ["let go of x and dy when W has run"], '''
         later.append(weights_half)
+        SplitLinear.kept = [*getattr(SplitLinear, "kept", []), x, dy]
'''),
    Wrong("added_twice", ["autograd and the queue both add it"], '''
-        return dy @ weight if ctx.needs_input_grad[0] else None, None, None, None
+        rows = dy.reshape(-1, dy.shape[-1])
+        db = rows.sum(0) if bias is not None else None
+        return dy @ weight, rows.t() @ x.reshape(-1, x.shape[-1]), db, None
'''),
    Wrong("bias_at_once", ["first layer's bias is there before the queue"], '''
-            if bias is not None:
-                add(bias, rows.sum(0))
+        db = dy.reshape(-1, dy.shape[-1]).sum(0) if bias is not None else None
@@
-        return dy @ weight if ctx.needs_input_grad[0] else None, None, None, None
+        return dy @ weight if ctx.needs_input_grad[0] else None, None, db, None
'''),
    Wrong("bias_forgotten", ["the gradient of the first layer's bias"], '''
-            if bias is not None:
-                add(bias, rows.sum(0))
'''),
    Wrong("called_at_once", ["cannot be called", "append the function itself"], '''
-        later.append(weights_half)
+        later.append(weights_half())
'''),
    Wrong("input_always", ["nobody needs the gradient of x"], '''
-        return dy @ weight if ctx.needs_input_grad[0] else None, None, None, None
+        return dy @ weight, None, None, None
'''),
    Wrong("not_queued", ["the queue is empty"], '''
-        later.append(weights_half)
'''),
    Wrong("plain_linear", ["the queue is empty", "is there before the queue"], '''
-    return SplitLinear.apply(x, weight, bias, later)
+    return linear(x, weight, bias)
'''),
    Wrong("product_in_backward", ["operations of the products in backward", "only adding it is delayed"], '''
         x, weight, bias, later = ctx.kept
+        rows = dy.reshape(-1, dy.shape[-1])
+        product = rows.t() @ x.reshape(-1, x.shape[-1])
@@
-            rows = dy.reshape(-1, dy.shape[-1])
-            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
+            add(weight, product)
'''),
    Wrong("replaces", ["replaced what the others had added"], '''
-    leaf.grad = grad if leaf.grad is None else leaf.grad + grad
+    leaf.grad = grad
'''),
    Wrong("two_dims_only", ["RuntimeError"], '''
-            rows = dy.reshape(-1, dy.shape[-1])
-            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
+            rows = dy
+            add(weight, torch.mm(rows.t(), x))
'''),
    Wrong("weight_detached", ["the output needs no gradient", "autograd does not call the backward"], '''
-        ctx.kept = x, weight, bias, later
+        ctx.kept = x, later[0], bias, later[1]
@@
-    return SplitLinear.apply(x, weight, bias, later)
+    return SplitLinear.apply(x, weight.detach(), None if bias is None else bias.detach(), (weight, later))
'''),
]

RIGHT = [
    Right("variant_local_graph", "the weights' half is a small graph of its own; saved tensors; in-place sums", '''
from collections.abc import Callable
from typing import Any

import torch


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, later: Any) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.later = bias, later
        return x @ weight.t() if bias is None else x @ weight.t() + bias

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        leaves = [weight] if ctx.bias is None else [weight, ctx.bias]
        ctx.later.append(lambda: half(x, leaves, grads[0]))
        return (grads[0] @ weight if ctx.needs_input_grad[0] else None), None, None, None


def half(x: torch.Tensor, leaves: list[Any], dy: torch.Tensor) -> None:
    y = torch.nn.functional.linear(x.detach(), *leaves)
    y.backward(dy)


def split_linear(x: Any, weight: Any, bias: Any, later: list[Callable[[], None]]) -> torch.Tensor:
    return Cut.apply(x, weight, bias, later)
'''),
]
