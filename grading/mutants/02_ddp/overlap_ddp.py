"""Wrong and right answers to `overlap_ddp`: see `course dev show overlap_ddp`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("after_the_backward", ["all are launched after the backward", "there is nothing left to overlap with"], '''
-        self._under_way: list[Work] = []
-        # BEGIN SOLUTION: register a hook on each parameter that requires a gradient
-        for parameter in module.parameters():
-            if parameter.requires_grad:
-                parameter.register_post_accumulate_grad_hook(self._launch)
+        self._under_way = []
+        pass
@@
-    def _launch(self, parameter: torch.Tensor) -> None:
-        """The hook, called when the gradient of this parameter is complete."""
-        # BEGIN SOLUTION: launch the all-reduce, and remember what is under way
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
@@
-        for work in self._under_way:
+        works = [
+            all_reduce(parameter.grad, self.group, "avg", async_op=True)
+            for parameter in self.module.parameters()
+            if parameter.requires_grad
+        ]
+        for work in works:
@@
-        self._under_way.clear()
'''),
    Wrong("before_it_is_accumulated", ["begins before the gradient of", "use register_post_accumulate_grad_hook"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-                parameter.register_post_accumulate_grad_hook(self._launch)
+                parameter.register_hook(self._launch)
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        self._under_way.append(all_reduce(parameter, self.group, "avg", async_op=True))
'''),
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, Work, all_reduce, broadcast
+import torch.distributed as dist
@@
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        parameter.grad /= self.group.size
+        self._under_way.append(dist.all_reduce(parameter.grad, group=self.group.handle, async_op=True))
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        small = parameter.grad.float()
+        work = all_reduce(small, self.group, "avg", async_op=True)
+        self._under_way.append((work, parameter, small))
@@
-        for work in self._under_way:
+        for work, parameter, small in self._under_way:
@@
             work.wait()
+            parameter.grad.copy_(small)
'''),
    Wrong("hooks_again_in_each_forward", ["every gradient is reduced twice"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
         """The module's own forward."""
+        for parameter in self.module.parameters():
+            if parameter.requires_grad:
+                parameter.register_post_accumulate_grad_hook(self._launch)
'''),
    Wrong("hooks_on_frozen_parameters", ["cannot register a hook"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-            if parameter.requires_grad:
-                parameter.register_post_accumulate_grad_hook(self._launch)
+            parameter.register_post_accumulate_grad_hook(self._launch)
'''),
    Wrong("in_the_order_of_forward", ["has not begun when the next gradient", "whatever order they come in"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
                 parameter.register_post_accumulate_grad_hook(self._launch)
+        self._trained = [p for p in module.parameters() if p.requires_grad]
+        self._ready = set()
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        self._ready.add(parameter)
+        while self._trained[len(self._under_way)] in self._ready:
+            gradient = self._trained[len(self._under_way)].grad
+            self._under_way.append(all_reduce(gradient, self.group, "avg", async_op=True))
+            if len(self._under_way) == len(self._trained):
+                break
@@
         self._under_way.clear()
+        self._ready.clear()
'''),
    Wrong("keeps_only_the_last", ["were never waited for"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        self._under_way.append(work)
+        self._under_way = [work]
'''),
    Wrong("no_hooks", ["no all-reduce was launched", "this is the rank's own gradient"], '''
-        self._under_way: list[Work] = []
-        # BEGIN SOLUTION: register a hook on each parameter that requires a gradient
-        for parameter in module.parameters():
-            if parameter.requires_grad:
-                parameter.register_post_accumulate_grad_hook(self._launch)
+        self._under_way = []
+        pass
'''),
    Wrong("no_wait", ["were never waited for", "may use gradients that are not yet reduced"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        for work in self._under_way:
-            work.wait()
-        self._under_way.clear()
+        pass
'''),
    Wrong("one_hook_too_late", ["has not begun when the next gradient", "launched late"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
                 parameter.register_post_accumulate_grad_hook(self._launch)
+        self._last = None
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        if self._last is not None:
+            self._under_way.append(all_reduce(self._last.grad, self.group, "avg", async_op=True))
+        self._last = parameter
@@
         """Returns when all gradients are means. Called between backward and step."""
+        self._under_way.append(all_reduce(self._last.grad, self.group, "avg", async_op=True))
+        self._last = None
'''),
    Wrong("only_the_first_in_the_hook", ["has not begun when the next gradient", "launched late"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
                 parameter.register_post_accumulate_grad_hook(self._launch)
+        self._rest = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        if self._under_way:
+            self._rest.append(parameter)
+        else:
+            self._under_way.append(all_reduce(parameter.grad, self.group, "avg", async_op=True))
@@
         """Returns when all gradients are means. Called between backward and step."""
+        for parameter in self._rest:
+            self._under_way.append(all_reduce(parameter.grad, self.group, "avg", async_op=True))
+        self._rest.clear()
'''),
    Wrong("sum_not_mean", ["this is the sum", "trained with the sum"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
+        work = all_reduce(parameter.grad, self.group, async_op=True)
'''),
    Wrong("synchronous_in_the_hook", ["were waited for inside the backward", "a wait in the hook stops the backward"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        all_reduce(parameter.grad, self.group, "avg")
@@
-        for work in self._under_way:
-            work.wait()
-        self._under_way.clear()
+        pass
'''),
    Wrong("tied_twice", ["the tied weight is reduced twice"], '''
-        self._under_way: list[Work] = []
-        # BEGIN SOLUTION: register a hook on each parameter that requires a gradient
-        for parameter in module.parameters():
+        self._under_way = []
+        for _, parameter in module.named_parameters(remove_duplicate=False):
'''),
    Wrong("torchs_own", ["past course_lib.comm"], '''
-        self._under_way: list[Work] = []
-        # BEGIN SOLUTION: register a hook on each parameter that requires a gradient
-        for parameter in module.parameters():
-            if parameter.requires_grad:
-                parameter.register_post_accumulate_grad_hook(self._launch)
+        self._under_way = []
+        self.wrapped = nn.parallel.DistributedDataParallel(module, process_group=group.handle)
@@
-        return self.module(*args, **kwargs)
-
-    def _launch(self, parameter: torch.Tensor) -> None:
-        """The hook, called when the gradient of this parameter is complete."""
-        # BEGIN SOLUTION: launch the all-reduce, and remember what is under way
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        return self.wrapped(*args, **kwargs)
@@
-        for work in self._under_way:
-            work.wait()
-        self._under_way.clear()
+        pass
'''),
    Wrong("waits_a_step_too_late", ["were waited for only after the step"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
                 parameter.register_post_accumulate_grad_hook(self._launch)
+        self._before = []
@@
-        for work in self._under_way:
+        for work in self._before:
@@
-        self._under_way.clear()
+        self._before, self._under_way = self._under_way, []
'''),
    Wrong("waits_for_the_last_only", ["were never waited for"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        for work in self._under_way:
-            work.wait()
+        self._under_way[-1].wait()
'''),
    Wrong("waits_for_the_one_before", ["were waited for inside the backward"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        if self._under_way:
+            self._under_way.pop().wait()
+        self._under_way.append(all_reduce(parameter.grad, self.group, "avg", async_op=True))
'''),
    Wrong("waits_in_the_last_hook", ["all-reduces were waited for inside the backward"], '''
         self._under_way.append(work)
+        if len(self._under_way) == sum(p.requires_grad for p in self.module.parameters()):
+            self.wait()
'''),
    Wrong("waits_in_the_hook", ["were waited for inside the backward"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        all_reduce(parameter.grad, self.group, "avg", async_op=True).wait()
@@
-        for work in self._under_way:
-            work.wait()
-        self._under_way.clear()
+        pass
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
-        self._under_way.append(work)
+        wide = parameter.grad.double()
+        work = all_reduce(wide, self.group, "avg", async_op=True)
+        self._under_way.append((work, parameter.grad, wide))
@@
-        for work in self._under_way:
+        for work, grad, wide in self._under_way:
@@
             work.wait()
+            grad.copy_(wide)
'''),
    Wrong("works_on_a_copy", ["this is the rank's own gradient"], '''
-        self._under_way: list[Work] = []
+        self._under_way = []
@@
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
+        work = all_reduce(parameter.grad.clone(), self.group, "avg", async_op=True)
'''),
    Wrong("never_clears_its_list", ["the Works of old steps are still there", "forget those that were waited for"], '''
-        self._under_way.clear()
'''),
    Wrong("reduces_the_parameter", ["the parameter, or nothing?"], '''
-        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
+        work = all_reduce(parameter.data, self.group, "avg", async_op=True)
'''),
]

RIGHT = [
    Right("closures", "closures in a list instead of a method; sum, divided by hand after the wait", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class OverlapDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)
        self._under_way = []
        def hook(parameter: torch.Tensor) -> None:
            gradient = parameter.grad
            work = all_reduce(gradient, group, async_op=True)

            def finish() -> None:
                work.wait()
                gradient.div_(group.size)

            self._under_way.append(finish)

        self._handles = [
            p.register_post_accumulate_grad_hook(hook) for p in module.parameters() if p.requires_grad
        ]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def wait(self) -> None:
        while self._under_way:
            self._under_way.pop(0)()
'''),
    Right("divides_before", "divides before it launches; a dict by parameter, waited for backwards", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class OverlapDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)
        self._under_way = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._launch)
        self._works = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        parameter.grad /= self.group.size
        self._works[parameter] = all_reduce(parameter.grad, self.group, "sum", async_op=True)

    def wait(self) -> None:
        for parameter in list(self._works)[::-1]:
            self._works.pop(parameter).wait()
'''),
    Right("waits_at_the_end_of_backward", "autograd itself calls the wait when backward is over", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class OverlapDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)
        self._under_way = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._launch)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        if not self._under_way:
            torch.autograd.Variable._execution_engine.queue_callback(self._wait_for_all)
        self._under_way.append(all_reduce(parameter.grad, self.group, "avg", async_op=True))

    def _wait_for_all(self) -> None:
        for work in self._under_way:
            work.wait()
        self._under_way = []

    def wait(self) -> None:
        assert not self._under_way
'''),
]
