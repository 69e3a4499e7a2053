"""Wrong and right answers to `gpipe_step`: see `course dev show gpipe_step`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("a_barrier_between_the_loops", ["an import that this exercise does not allow: course_lib.comm.barrier"], '''
 from course_lib.comm import Group, recv, send
+from course_lib.comm import barrier
@@
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
         kept.append((inputs, outputs))
+    barrier(group)
'''),
    Wrong("buffers_of_the_default_dtype", ["rank 0 sends float64; rank 1 takes float32"], '''
-    buffer = torch.empty_like(like)
+    buffer = torch.empty(like.shape)
@@
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
'''),
    Wrong("divided_twice", ["divided twice by the number of micro-batches"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            outputs = outputs / len(micro_batches)
+            outputs = outputs / len(micro_batches) ** 2
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            buffer = torch.empty_like(like, dtype=torch.float32)
+            recv(buffer, group.index - 1, group)
+            inputs = buffer.double().requires_grad_()
@@
-            send(outputs.detach(), group.index + 1, group)  # mutate: same
+            send(outputs.detach().float(), group.index + 1, group)
'''),
    Wrong("input_needs_no_gradient", ["a gradient is None", "must require a gradient before the stage's forward"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            inputs = received(like, group.index - 1, group)
'''),
    Wrong("keeps_what_is_detached", ["backward needs the output with its graph"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            send(outputs.detach(), group.index + 1, group)  # mutate: same
+            outputs = outputs.detach()
+            send(outputs, group.index + 1, group)
'''),
    Wrong("last_rank_backwards_reversed", ["a gradient went into another micro-batch's backward"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-    for inputs, outputs in kept:
+    for inputs, outputs in reversed(kept) if last else kept:
'''),
    Wrong("last_rank_runs_backward_at_once", ["deadlock", "all forwards before all backwards"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-    for inputs, outputs in kept:
+        if last:
+            outputs.backward()
+            if not first:
+                send(inputs.grad, group.index - 1, group)
+    for inputs, outputs in [] if last else kept:
'''),
    Wrong("loss_not_divided", ["the sum over the micro-batches", "divide each loss by their number"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            outputs = outputs / len(micro_batches)
+            outputs = outputs
'''),
    Wrong("losses_divided", ["divided by their number: that is for the backward only"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            losses.append(outputs.detach())
+            losses.append(outputs.detach() / len(micro_batches))
'''),
    Wrong("losses_with_their_graph", ["hold a graph"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            losses.append(outputs.detach())
+            losses.append(outputs)
'''),
    Wrong("never_waits_for_its_sends", ["under way on return", "wait for what `isend`"], '''
 from course_lib.comm import Group, recv, send
+from course_lib.comm import isend
@@
-    kept, losses = [], []  # mutate: same
@@
     first, last = group.index == 0, group.index == group.size - 1
+    kept, losses, sending = [], [], []
@@
-            send(outputs.detach(), group.index + 1, group)  # mutate: same
+            sending.append(isend(outputs.detach(), group.index + 1, group))
@@
-            send(inputs.grad, group.index - 1, group)
+            sending.append(isend(inputs.grad, group.index - 1, group))
'''),
    Wrong("one_buffer_for_all_inputs", ["autograd has saved a micro-batch's input", "a buffer for each"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
+    buffer = torch.empty_like(like)
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            recv(buffer, group.index - 1, group)
+            inputs = buffer.detach().requires_grad_()
'''),
    Wrong("one_micro_batch_at_a_time", ["each backward follows its own forward"], '''
-    kept, losses = [], []  # mutate: same
@@
     first, last = group.index == 0, group.index == group.size - 1
+    losses = []
@@
-        kept.append((inputs, outputs))
-    for inputs, outputs in kept:
'''),
    Wrong("one_output_for_all", ["each micro-batch keeps its own"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-        kept.append((inputs, outputs))
-    for inputs, outputs in kept:
+        kept.append(None)
+    for _ in kept:
'''),
    Wrong("passes_the_gradient_on", ["stage 0's gradient"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            send(inputs.grad, group.index - 1, group)
+            send(inputs.grad if last else gradient, group.index - 1, group)
'''),
    Wrong("resets_at_the_start", ["what was in `grad` before is lost"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
+    stage.zero_grad()
'''),
    Wrong("resets_between_micro_batches", ["gradients are reset between micro-batches"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
         gradient = None if last else received(like, group.index + 1, group)
+        stage.zero_grad()
'''),
    Wrong("sends_zeros_back", ["no gradient has come back from the next stage"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            inputs = received(like, group.index - 1, group)
@@
-            send(inputs.grad, group.index - 1, group)
+            gradient = torch.zeros_like(like) if inputs.grad is None else inputs.grad
+            send(gradient, group.index - 1, group)
'''),
    Wrong("the_whole_batch_in_one_message", ["the whole batch in one message"], '''
-    kept, losses = [], []  # mutate: same
@@
     first, last = group.index == 0, group.index == group.size - 1
+    kept, losses, made = [], [], []
+    if not first:
+        whole = like.new_empty(len(micro_batches), *like.shape)
+        recv(whole, group.index - 1, group)
+        arrived = iter(whole.unbind())
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            inputs = next(arrived).clone().requires_grad_()
@@
-            send(outputs.detach(), group.index + 1, group)  # mutate: same
+            made.append(outputs.detach())
@@
         kept.append((inputs, outputs))
+    if not last:
+        send(torch.stack(made), group.index + 1, group)
'''),
    Wrong("uses_global_ranks", ["two pipelines of two ranks"], '''
     """
+    first, last = group.rank == 0, group.rank == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs = received(like, group.index - 1, group).requires_grad_()
+            inputs = received(like, group.rank - 1, group).requires_grad_()
@@
-            send(outputs.detach(), group.index + 1, group)  # mutate: same
+            send(outputs.detach(), group.rank + 1, group)
@@
-        gradient = None if last else received(like, group.index + 1, group)
+        gradient = None if last else received(like, group.rank + 1, group)
@@
-            send(inputs.grad, group.index - 1, group)
+            send(inputs.grad, group.rank - 1, group)
'''),
]

RIGHT = [
    Right("variant_backwards_in_the_opposite_order", "the last micro-batch first, on all ranks", '''
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, recv, send


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, losses = [], []
    for inputs, targets in micro_batches:
        if not first:
            inputs = received(like, group.index - 1, group).requires_grad_()
        outputs = stage(inputs)
        if last:
            outputs = loss(outputs, targets)
            losses.append(outputs.detach())
            outputs = outputs / len(micro_batches)
        else:
            send(outputs.detach(), group.index + 1, group)
        kept.append((inputs, outputs))
    for inputs, outputs in reversed(kept):
        gradient = None if last else received(like, group.index + 1, group)
        outputs.backward(gradient)
        if not first:
            send(inputs.grad, group.index - 1, group)
    return losses
'''),
    Right("variant_receives_started_ahead", "all receives are started at the beginning, and a hook sends the gradient", '''
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, irecv, isend


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, losses, sending = [], [], []
    before = [torch.empty_like(like) for _ in micro_batches]
    behind = [torch.empty_like(like) for _ in micro_batches]
    if not first:
        ahead = [irecv(x, group.index - 1, group) for x in before]
    if not last:
        back = [irecv(g, group.index + 1, group) for g in behind]
    for k, (inputs, targets) in enumerate(micro_batches):
        if not first:
            ahead[k].wait()
            inputs = before[k].requires_grad_()
            inputs.register_hook(
                lambda g: sending.append(isend(g.contiguous(), group.index - 1, group))
            )
        outputs = stage(inputs)
        if last:
            outputs = loss(outputs, targets)
            losses.append(outputs.detach())
            outputs = outputs / len(micro_batches)
        else:
            sending.append(isend(outputs.detach(), group.index + 1, group))
        kept.append(outputs)
    for k, outputs in enumerate(kept):
        gradient = None
        if not last:
            back[k].wait()
            gradient = behind[k]
        outputs.backward(gradient)
    for work in sending:
        work.wait()
    return losses
'''),
    Right("variant_sends_that_do_not_block", "isend, and one wait at the end", '''
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, losses, sending = [], [], []
    for inputs, targets in micro_batches:
        if not first:
            inputs = received(like, group.index - 1, group).requires_grad_()
        outputs = stage(inputs)
        if last:
            outputs = loss(outputs, targets)
            losses.append(outputs.detach())
            outputs = outputs / len(micro_batches)
        else:
            sending.append(isend(outputs.detach(), group.index + 1, group))
        kept.append((inputs, outputs))
    for inputs, outputs in kept:
        gradient = None if last else received(like, group.index + 1, group)
        outputs.backward(gradient)
        if not first:
            sending.append(isend(inputs.grad, group.index - 1, group))
    for work in sending:
        work.wait()
    return losses
'''),
]
