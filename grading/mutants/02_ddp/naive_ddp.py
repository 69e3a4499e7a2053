"""Wrong and right answers to `naive_ddp`: see `course dev show naive_ddp`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("zeros_in_the_first_step_only", ["deadlock"], '''
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
+            if parameter.grad is None and not hasattr(self, "began"):
+                parameter.grad = torch.zeros_like(parameter)
+            if parameter.grad is None:
+                continue
@@
             all_reduce(parameter.grad, self.group, "avg")
+        self.began = True
'''),
    Wrong("averages_in_forward", ["average the gradients before the step", "something was sent in forward"], '''
         """The module's own forward."""
+        with torch.no_grad():
+            for parameter in self.module.parameters():
+                all_reduce(parameter, self.group, "avg")
@@
-        for parameter in self.module.parameters():
-            if not parameter.requires_grad:
-                continue
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, self.group, "avg")
+        pass
'''),
    Wrong("averages_the_parameters", ["average the gradients before the step", "not the parameters after it"], '''
-        for parameter in self.module.parameters():
-            if not parameter.requires_grad:
-                continue
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, self.group, "avg")
+        with torch.no_grad():
+            for parameter in self.module.parameters():
+                all_reduce(parameter, self.group, "avg")
'''),
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, all_reduce, broadcast
+import torch.distributed as dist
@@
-            all_reduce(parameter.grad, self.group, "avg")
+            dist.all_reduce(parameter.grad, group=self.group.handle)
+            parameter.grad /= self.group.size
'''),
    Wrong("divides_by_the_world", ["divided by the world's size and not by the group's"], '''
 from course_lib.comm import Group, all_reduce, broadcast
+import os
@@
-            all_reduce(parameter.grad, self.group, "avg")
+            all_reduce(parameter.grad, self.group)
+            parameter.grad /= int(os.environ["WORLD_SIZE"])
'''),
    Wrong("divides_by_those_that_have_one", ["divided by the number of ranks that use it"], '''
                 continue
+            has = torch.tensor(float(parameter.grad is not None))
@@
-            all_reduce(parameter.grad, self.group, "avg")
+            all_reduce(has, self.group)
+            all_reduce(parameter.grad, self.group)
+            parameter.grad /= has.clamp(min=1)
'''),
    Wrong("divides_by_two", ["divided by 2", "whatever the group's size"], '''
-            all_reduce(parameter.grad, self.group, "avg")
+            all_reduce(parameter.grad, self.group)
+            parameter.grad /= 2
'''),
    Wrong("divides_twice", ["`avg` divides already"], '''
             all_reduce(parameter.grad, self.group, "avg")
+            parameter.grad /= self.group.size
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-            all_reduce(parameter.grad, self.group, "avg")
+            small = parameter.grad.float()
+            all_reduce(small, self.group, "avg")
+            parameter.grad.copy_(small)
'''),
    Wrong("frozen_gets_a_gradient", ["is frozen", "but has a gradient", "the frozen parameter takes part as well"], '''
-            if not parameter.requires_grad:
-                continue
'''),
    Wrong("frozen_not_broadcast", ["frozen after construction", "it was not broadcast"], '''
-                broadcast(tensor, 0, group)
+                if tensor.requires_grad or tensor in set(module.buffers()):
+                    broadcast(tensor, 0, group)
'''),
    Wrong("mean_at_the_start", ["this is the mean of all replicas"], '''
-            for tensor in [*module.parameters(), *module.buffers()]:
-                broadcast(tensor, 0, group)
+            for parameter in module.parameters():
+                all_reduce(parameter, group, "avg")
+            for buffer in module.buffers():
+                broadcast(buffer, 0, group)
'''),
    Wrong("new_parameters", ["the tensors were replaced by others"], '''
-        with torch.no_grad():
-            for tensor in [*module.parameters(), *module.buffers()]:
-                broadcast(tensor, 0, group)
+        for part in module.modules():
+            for name, parameter in list(part.named_parameters(recurse=False)):
+                copy = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
+                broadcast(copy.detach(), 0, group)
+                setattr(part, name, copy)
+        for buffer in module.buffers():
+            broadcast(buffer, 0, group)
'''),
    Wrong("no_buffers", ["shift after construction", "it was not broadcast", "15 of 17 points"], '''
-            for tensor in [*module.parameters(), *module.buffers()]:
+            for tensor in module.parameters():
'''),
    Wrong("no_synchronisation", ["the rank's own gradient: nothing was averaged"], '''
-        for parameter in self.module.parameters():
-            if not parameter.requires_grad:
-                continue
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, self.group, "avg")
+        pass
'''),
    Wrong("nothing_at_the_start", ["frozen after construction", "it was not broadcast", "did not start equal"], '''
-        with torch.no_grad():
-            for tensor in [*module.parameters(), *module.buffers()]:
-                broadcast(tensor, 0, group)
+        pass
'''),
    Wrong("one_flat_all_reduce", ["all gradients in one all-reduce"], '''
-        for parameter in self.module.parameters():
-            if not parameter.requires_grad:
-                continue
+        trained = [p for p in self.module.parameters() if p.requires_grad]
+        for parameter in trained:
@@
-            all_reduce(parameter.grad, self.group, "avg")
+        flat = torch.cat([p.grad.reshape(-1) for p in trained])
+        all_reduce(flat, self.group, "avg")
+        for parameter, part in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
+            parameter.grad.copy_(part.view(parameter.shape))
'''),
    Wrong("skips_unused", ["deadlock", "must take part with zeros"], '''
-            if not parameter.requires_grad:
-                continue
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, self.group, "avg")
+            if parameter.grad is not None:
+                all_reduce(parameter.grad, self.group, "avg")
'''),
    Wrong("state_dict_only", ["mask after construction", "it was not broadcast", "module.buffers"], '''
-        with torch.no_grad():
-            for tensor in [*module.parameters(), *module.buffers()]:
-                broadcast(tensor, 0, group)
+        for tensor in module.state_dict().values():
+            broadcast(tensor, 0, group)
'''),
    Wrong("sum_not_mean", ["this is the sum", "divide by the group's size", "trained with the sum"], '''
-            all_reduce(parameter.grad, self.group, "avg")
+            all_reduce(parameter.grad, self.group, "sum")
'''),
    Wrong("tied_twice", ["the tied weight is reduced twice"], '''
-        for parameter in self.module.parameters():
+        for _, parameter in self.module.named_parameters(remove_duplicate=False):
'''),
    Wrong("torchs_own", ["past course_lib.comm"], '''
-        with torch.no_grad():
-            for tensor in [*module.parameters(), *module.buffers()]:
-                broadcast(tensor, 0, group)
+        self.wrapped = nn.parallel.DistributedDataParallel(module, process_group=group.handle)
@@
-        return self.module(*args, **kwargs)
+        return self.wrapped(*args, **kwargs)
@@
-        for parameter in self.module.parameters():
-            if not parameter.requires_grad:
-                continue
-            if parameter.grad is None:
-                parameter.grad = torch.zeros_like(parameter)
-            all_reduce(parameter.grad, self.group, "avg")
+        pass
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-            all_reduce(parameter.grad, self.group, "avg")
+            wide = parameter.grad.double()
+            all_reduce(wide, self.group, "avg")
+            parameter.grad.copy_(wide)
'''),
    Wrong("works_on_a_copy", ["average the gradients before the step"], '''
-            all_reduce(parameter.grad, self.group, "avg")
+            all_reduce(parameter.grad.clone(), self.group, "avg")
'''),
]

RIGHT = [
    Right("backwards_through_named_parameters", "a list made at the start, last parameter first; data instead of detach", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.trained = [p for _, p in module.named_parameters() if p.requires_grad][::-1]
        for tensor in module.parameters():
            broadcast(tensor.data, 0, group)
        for tensor in module.buffers():
            broadcast(tensor, 0, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        for parameter in self.trained:
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            all_reduce(gradient, self.group)
            parameter.grad = gradient / self.group.size
'''),
    Right("divides_itself", "divides before the sum; detached tensors instead of no_grad; all launched at once", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.buffers(), *module.parameters()]:
            broadcast(tensor.detach(), 0, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        works = []
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad /= self.group.size
                works.append(all_reduce(parameter.grad, self.group, async_op=True))
        for work in works:
            work.wait()
'''),
    Right("own_ring", "the ring of lesson 01 instead of the backend's all-reduce; one message at the start for each dtype", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_reduce


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        tensors = [*module.parameters(), *module.buffers()]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            some = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            broadcast(flat, 0, group)
            for tensor, part in zip(some, flat.split([t.numel() for t in some]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            ring_all_reduce(parameter.grad, self.group, "avg")
'''),
]
