"""Wrong and right answers to `checkpoint`: see `course dev show checkpoint`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("loses_zeros", ["unsupported operand"], '''
-        ctx.args = [None if torch.is_tensor(arg) else arg for arg in args]
+        ctx.args = [None if torch.is_tensor(arg) else arg or None for arg in args]
'''),
    Wrong("always_bf16", ["a product with autocast on in forward"], '''
-        dtype, on = ctx.autocast
+        dtype, on = torch.bfloat16, ctx.autocast[1]
'''),
    Wrong("all_need_gradients", ["can require gradients"], '''
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
+            args[i] = tensor.detach().requires_grad_()
'''),
    Wrong("gradients_of_others", ["only `x` or only `other`"], '''
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
+            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i - 2] and tensor.is_floating_point())
'''),
    Wrong("autocast_always", ["autocast as in forward is missing"], '''
-        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
+        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=True):
'''),
    Wrong("autocast_lost", ["autocast as in forward is missing"], '''
-        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
+        with torch.enable_grad():
'''),
    Wrong("dropout_differs", ["draws different random numbers from the first"], '''
-        torch.set_rng_state(ctx.state)
'''),
    Wrong("grad_disabled", ["does not require grad"], '''
-        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
+        with torch.autocast("cpu", dtype=dtype, enabled=on):
'''),
    Wrong("gradient_of_the_sum", ["wrong value"], '''
-        torch.autograd.backward(output, grads[0])
+        torch.autograd.backward(output, torch.ones_like(output))
'''),
    Wrong("graph_kept", ["activations of the first run are kept"], '''
-        return fn(*args)
+        with torch.enable_grad():
+            ctx.output = fn(*(a.detach().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a for a in args))
+        return ctx.output.detach()
'''),
    Wrong("graph_used", ["nothing is recomputed"], '''
-        return fn(*args)
+        ctx.inputs = [a.detach().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a for a in args]
+        with torch.enable_grad():
+            ctx.output = fn(*ctx.inputs)
+        return ctx.output.detach()
@@
-        args, outside = list(ctx.args), torch.get_rng_state()
-        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):  # mutate: same
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
-        dtype, on = ctx.autocast
-        torch.set_rng_state(ctx.state)
-        with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
-            output = ctx.fn(*args)
-        torch.set_rng_state(outside)
-        torch.autograd.backward(output, grads[0])
+        args = ctx.inputs
+        for arg in args:
+            if torch.is_tensor(arg):
+                arg.grad = None
+        torch.autograd.backward(ctx.output, grads[0], retain_graph=True)
'''),
    Wrong("inputs_need_nothing", ["returns a gradient for each tensor"], '''
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
+            args[i] = tensor.detach()
'''),
    Wrong("no_token", ["give it the token"], '''
-    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
+    output: torch.Tensor = Checkpoint.apply(torch.empty(0), fn, *args)
'''),
    Wrong("none_gradients", ["returns a gradient for each tensor"], '''
-        return None, None, *(arg.grad if torch.is_tensor(arg) else None for arg in args)
+        return None, None, *(None for arg in args)
'''),
    Wrong("not_detached", ["backward through the graph a second time"], '''
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
+            args[i] = tensor
@@
         torch.set_rng_state(outside)
+        for a in args:
+            if torch.is_tensor(a) and a.requires_grad:
+                a.retain_grad()
'''),
    Wrong("put_back_too_early", ["draws different random numbers from the first"], '''
         torch.set_rng_state(ctx.state)
+        torch.set_rng_state(outside)
@@
-        torch.set_rng_state(outside)
'''),
    Wrong("recomputed_twice", ["recomputed more than once"], '''
         with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
+            ctx.fn(*args)
+            torch.set_rng_state(ctx.state)
'''),
    Wrong("reseeded", ["first run"], '''
         """Returns `fn(*args)`; `ctx` keeps what the second run needs."""
+        torch.manual_seed(0)
'''),
    Wrong("returns_a_tuple", ["must return fn's tensor"], '''
-    return output
+    return output,
'''),
    Wrong("second_run_stays", ["tensors stay in memory"], '''
         torch.set_rng_state(outside)
+        ctx.output = output
'''),
    Wrong("state_noted_after", ["draws different random numbers from the first"], '''
-        ctx.fn, ctx.state = fn, torch.get_rng_state()
+        ctx.fn = fn
@@
-        return fn(*args)
+        output = fn(*args)
+        ctx.state = torch.get_rng_state()
+        return output
'''),
    Wrong("stream_not_put_back", ["set the generator back"], '''
-        torch.set_rng_state(outside)
'''),
    Wrong("tensors_only", ["missing"], '''
-            output = ctx.fn(*args)
+            output = ctx.fn(*(a for a in args if torch.is_tensor(a)))
'''),
    Wrong("wrong_order", ["gradient of another input"], '''
-        return None, None, *(arg.grad if torch.is_tensor(arg) else None for arg in args)
+        slots = [arg.grad if torch.is_tensor(arg) else None for arg in args]
+        slots[0], slots[2] = slots[2], slots[0]
+        return None, None, *slots
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.utils.checkpoint.checkpoint"], '''
-    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
-    return output
+    return torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False)
'''),
    Wrong("tensors_on_ctx", ["an input was changed in place before backward", "save_for_backward"], '''
-        ctx.places = [i for i, arg in enumerate(args) if torch.is_tensor(arg)]
-        ctx.save_for_backward(*(args[i] for i in ctx.places))
-        ctx.args = [None if torch.is_tensor(arg) else arg for arg in args]
+        ctx.args = args
@@
-        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):  # mutate: same
-            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
+        for i, tensor in enumerate(args):
+            if torch.is_tensor(tensor):
+                args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
'''),
]

RIGHT = [
    Right("variant_class_inside", "the function is made for each call, and everything is in its closure", '''
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
'''),
    Right("variant_fork", "fork_rng, arguments on ctx", '''
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
        args = list(ctx.args)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = tensor.detach().requires_grad_(ctx.needs_input_grad[i + 2])
        dtype, on = ctx.autocast
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=on):
            torch.set_rng_state(ctx.state)
            output = ctx.fn(*args)
        torch.autograd.backward(output, grads[0])
        return None, None, *(arg.grad if torch.is_tensor(arg) else None for arg in args)


def checkpoint(fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
    return output
'''),
    Right("variant_hooks", "one backward, with slots in the place of saved tensors", '''
import torch
from torch.autograd.graph import saved_tensors_hooks


def checkpoint(fn, *args):
    if not torch.is_grad_enabled():
        return fn(*args)
    state, on = torch.get_rng_state(), torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu")
    needed = [isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args]
    held = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
    ages = [arg._version for arg in held if isinstance(arg, torch.Tensor)]
    count, filled = [0], {}

    def pack(tensor):
        count[0] += 1
        return count[0] - 1

    def fill(tensor):
        filled[len(filled)] = tensor.detach()
        return tensor.detach()

    def unpack(slot):
        if slot not in filled:
            if ages != [arg._version for arg in held if isinstance(arg, torch.Tensor)]:
                raise RuntimeError("an input was changed")
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
'''),
]
