"""Wrong and right answers to `execute`: see `course dev show execute`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("backward_of_the_newest", ["did not do what its list says"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs, outputs = kept.pop(k)
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            inputs, outputs = kept.popitem()[1]
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("blocking_sends", ["deadlock", "start every send with `isend`"], '''
 from course_lib.comm import Group, isend, recv
+from course_lib.comm import send
@@
-    kept, sending, losses = {}, [], []  # mutate: same
@@
     first, last = group.index == 0, group.index == group.size - 1
+    kept, losses = {}, []
@@
-                sending.append(isend(outputs.detach(), group.index + 1, group))
+                send(outputs.detach(), group.index + 1, group)
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
@@
-                sending.append(isend(inputs.grad, group.index - 1, group))
-    for work in sending:
-        work.wait()
+                send(inputs.grad, group.index - 1, group)
'''),
    Wrong("divided_by_the_actions", ["0.5 times what it should be"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                outputs = outputs / len(micro_batches)
+                outputs = outputs / len(actions)
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                inputs = received(like, group.index - 1, group).requires_grad_()
+                buffer = torch.empty_like(like, dtype=torch.float32)
+                recv(buffer, group.index - 1, group)
+                inputs = buffer.double().requires_grad_()
@@
-                sending.append(isend(outputs.detach(), group.index + 1, group))
+                sending.append(isend(outputs.detach().float(), group.index + 1, group))
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("gpipe_whatever_the_list_says", ["this is GPipe", "whatever the list says"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
-    for kind, k in map(kind_and_micro, actions):
+    for kind, k in sorted(map(kind_and_micro, actions), key=lambda a: a[0] == "B"):
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("input_needs_no_gradient", ["a gradient is None"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                inputs = received(like, group.index - 1, group).requires_grad_()
+                inputs = received(like, group.index - 1, group)
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("keeps_until_the_end", ["stage 1's number of micro-batches alive at once", "something that a forward has kept outlives its backward"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            inputs, outputs = kept.pop(k)
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            inputs, outputs = kept[k]
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("loss_not_divided", ["the sum over the micro-batches", "divide each loss by their number"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                outputs = outputs / len(micro_batches)
+                outputs = outputs
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("losses_hold_the_graph", ["something that a forward has kept outlives its backward"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                losses.append(outputs.detach())
+                losses.append(outputs)
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
@@
-    return losses
+    return [value.detach() for value in losses]
'''),
    Wrong("never_waits_for_its_sends", ["under way on return", "wait for what `isend`"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
@@
-    for work in sending:
-        work.wait()
'''),
    Wrong("numbers_of_one_digit", ["came twice and another never"], '''
-    return kind, int(action.partition(kind)[2])
+    return kind, int(action[-1])
@@
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            kept[k] = inputs, outputs
+            kept.setdefault(k, []).append((inputs, outputs))
@@
-            inputs, outputs = kept.pop(k)
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            inputs, outputs = kept[k].pop(0)
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("one_f_one_b_whatever_the_list_says", ["did not do what its list says"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
-    for kind, k in map(kind_and_micro, actions):
+    m, ahead = len(micro_batches), group.size - group.index
+    plan = [("F", k) for k in range(min(m, ahead))]
+    for k in range(m):
+        plan += [("B", k)] + ([("F", k + ahead)] if k + ahead < m else [])
+    for kind, k in plan:
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("one_receive_buffer", ["autograd has saved a micro-batch's input"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
+    buffer = torch.empty_like(like)
@@
-                inputs = received(like, group.index - 1, group).requires_grad_()
+                recv(buffer, group.index - 1, group)
+                inputs = buffer.detach().requires_grad_()
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("one_send_buffer", ["what is being sent must not change before it has been waited for"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
+    buffer = torch.empty_like(like)
@@
-                sending.append(isend(outputs.detach(), group.index + 1, group))
+                buffer.copy_(outputs.detach())
+                sending.append(isend(buffer, group.index + 1, group))
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("one_send_under_way_each_way", ["large messages and a slow neighbour", "deadlock", "before the others receive what it has sent"], '''
-    kept, sending, losses = {}, [], []  # mutate: same
@@
     first, last = group.index == 0, group.index == group.size - 1
+    kept, ahead, back, losses = {}, [], [], []
@@
-                sending.append(isend(outputs.detach(), group.index + 1, group))
+                if ahead:
+                    ahead[-1].wait()
+                ahead.append(isend(outputs.detach(), group.index + 1, group))
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
@@
-                sending.append(isend(inputs.grad, group.index - 1, group))
-    for work in sending:
+                if back:
+                    back[-1].wait()
+                back.append(isend(inputs.grad, group.index - 1, group))
+    for work in ahead + back:
'''),
    Wrong("read_before_the_wait", ["an input was used before it had arrived"], '''
 from course_lib.comm import Group, isend, recv
+from course_lib.comm import irecv
@@
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                inputs = received(like, group.index - 1, group).requires_grad_()
+                inputs = torch.full_like(like, 1e9)
+                sending.append(irecv(inputs, group.index - 1, group))
+                inputs.requires_grad_()
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            outputs.backward(gradient)
'''),
    Wrong("resets_between_micro_batches", ["gradients are reset between micro-batches"], '''
     """
+    first, last = group.index == 0, group.index == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.index + 1, group)
+            stage.zero_grad()
+            outputs.backward(gradient)
'''),
    Wrong("uses_global_ranks", ["two pipelines of two ranks"], '''
     """
+    first, last = group.rank == 0, group.rank == group.size - 1
@@
-    first, last = group.index == 0, group.index == group.size - 1
@@
-                inputs = received(like, group.index - 1, group).requires_grad_()
+                inputs = received(like, group.rank - 1, group).requires_grad_()
@@
-                sending.append(isend(outputs.detach(), group.index + 1, group))
+                sending.append(isend(outputs.detach(), group.rank + 1, group))
@@
-            outputs.backward(None if last else received(like, group.index + 1, group))
+            gradient = None if last else received(like, group.rank + 1, group)
+            outputs.backward(gradient)
@@
-                sending.append(isend(inputs.grad, group.index - 1, group))
+                sending.append(isend(inputs.grad, group.rank - 1, group))
'''),
]

RIGHT = [
    Right("variant_a_class", "a class with a method for each kind of action; a send is waited for after its backward", '''
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


class Runner:
    def __init__(self, stage: Any, count: int, loss: Any, like: torch.Tensor, group: Group):
        self.stage, self.count, self.loss, self.like, self.group = stage, count, loss, like, group
        self.kept: dict[int, Any] = {}
        self.sending: list[Any] = []
        self.losses: list[torch.Tensor] = []

    def received(self, source: int) -> torch.Tensor:
        buffer = torch.empty_like(self.like)
        recv(buffer, source, self.group)
        return buffer

    def forward(self, k: int, x: torch.Tensor, y: torch.Tensor) -> None:
        here = self.group.index
        if here:
            x = self.received(here - 1).requires_grad_()
        out = self.stage(x)
        if here == self.group.size - 1:
            value = self.loss(out, y)
            self.losses.append(value.detach())
            out = value.div(self.count)
        else:
            self.sending.append(isend(out.detach(), here + 1, self.group))
        self.kept[k] = x, out

    def backward(self, k: int, *_: torch.Tensor) -> None:
        here = self.group.index
        x, out = self.kept.pop(k)
        if here == self.group.size - 1:
            out.backward()
        else:
            torch.autograd.backward([out], [self.received(here + 1)])
        if here:
            self.sending.append(isend(x.grad, here - 1, self.group))


def execute(
    actions: Sequence[str],
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    runner = Runner(stage, len(micro_batches), loss, like, group)
    for action in actions:
        _, kind, number = action.partition("F" if "F" in action else "B")
        do = runner.forward if kind == "F" else runner.backward
        do(int(number), *micro_batches[int(number)])
    for work in runner.sending:
        work.wait()
    return runner.losses
'''),
    Right("variant_first_in_first_out", "a queue instead of a dict: backwards come in the order of the forwards", '''
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


def kind_and_micro(action: str) -> tuple[str, int]:
    """`2F10` is ("F", 10), `2B10` is ("B", 10); the stage is this rank's own."""
    kind = "F" if "F" in action else "B"
    return kind, int(action.partition(kind)[2])


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def execute(
    actions: Sequence[str],
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, sending, losses = deque(), [], []
    for kind, k in map(kind_and_micro, actions):
        inputs, targets = micro_batches[k]
        if kind == "F":
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
        else:
            inputs, outputs = kept.popleft()
            gradient = None if last else received(like, group.index + 1, group)
            outputs.backward(gradient)
            if not first:
                sending.append(isend(inputs.grad, group.index - 1, group))
    for work in sending:
        work.wait()
    return losses
'''),
    Right("variant_receives_started_ahead", "all receives are started at the beginning", '''
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, irecv, isend


def kind_and_micro(action: str) -> tuple[str, int]:
    """`2F10` is ("F", 10), `2B10` is ("B", 10); the stage is this rank's own."""
    kind = "F" if "F" in action else "B"
    return kind, int(action.partition(kind)[2])


def execute(
    actions: Sequence[str],
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, sending, losses = {}, [], []
    ahead, back = deque(), deque()
    for _ in micro_batches:
        for queue, there, peer in ((ahead, not first, -1), (back, not last, 1)):
            if there:
                buffer = torch.empty_like(like)
                queue.append((irecv(buffer, group.index + peer, group), buffer))
    for kind, k in map(kind_and_micro, actions):
        inputs, targets = micro_batches[k]
        if kind == "F":
            if not first:
                work, inputs = ahead.popleft()
                work.wait()
                inputs.requires_grad_()
            outputs = stage(inputs)
            if last:
                outputs = loss(outputs, targets)
                losses.append(outputs.detach())
                outputs = outputs / len(micro_batches)
            else:
                sending.append(isend(outputs.detach(), group.index + 1, group))
            kept[k] = inputs, outputs
        else:
            inputs, outputs = kept.pop(k)
            gradient = None
            if not last:
                work, gradient = back.popleft()
                work.wait()
            outputs.backward(gradient)
            if not first:
                sending.append(isend(inputs.grad, group.index - 1, group))
    for work in sending:
        work.wait()
    return losses
'''),
]
