"""Wrong and right answers to `expert_grad_sync`: see `course dev show expert_grad_sync`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("divided_by_expert_ranks", ["divided by the size of one axis"], '''
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(world.size // replicas.size if group is replicas else world.size)
'''),
    Wrong("divided_twice", ["divided twice"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+                all_reduce(parameter.grad, group, "avg")
+                parameter.grad.div_(world.size if group is replicas else 1)
'''),
    Wrong("divides_by_users", ["the gradient of extra", "has the wrong value"], '''
                     parameter.grad = torch.zeros_like(parameter)
+                users = torch.tensor(float(parameter.grad.any()))
+                all_reduce(users, group)
@@
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(world.size if group is replicas else max(users.item(), 1))
'''),
    Wrong("experts_averaged_over_replicas", ["divided by the size of one axis", "rows came from all along"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+                all_reduce(parameter.grad, group, "avg")
'''),
    Wrong("experts_forgotten", ["this is the rank", "nothing was summed over its replicas"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((others, world),):
'''),
    Wrong("experts_not_divided", ["this is the sum over all ranks"], '''
-                parameter.grad.div_(world.size)
+                if group is world:
+                    parameter.grad.div_(world.size)
'''),
    Wrong("experts_only_divided", ["own gradient", "divided"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
+                if group is world:
+                    all_reduce(parameter.grad, group)
'''),
    Wrong("experts_over_the_world", ["different experts are mixed"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((experts, world), (others, world)):
'''),
    Wrong("experts_summed_over_the_world", ["different experts are mixed", "and not divided"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((experts, world), (others, world)):
@@
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(1 if parameters is experts else world.size)
'''),
    Wrong("float32_on_the_wire", ["has the wrong value"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
+                narrow = parameter.grad.float()
+                all_reduce(narrow, group)
+                parameter.grad.copy_(narrow)
'''),
    Wrong("frozen_takes_part", ["it is frozen"], '''
-            if parameter.requires_grad:
-                if parameter.grad is None:
-                    parameter.grad = torch.zeros_like(parameter)
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)
+            all_reduce(parameter.grad, group)
+            parameter.grad.div_(world.size)
'''),
    Wrong("not_divided", ["this is the sum over all ranks"], '''
-                parameter.grad.div_(world.size)
'''),
    Wrong("others_divided_by_replicas", ["divided by the number of replicas"], '''
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(world.size if group is replicas else replicas.size)
'''),
    Wrong("others_forgotten", ["this is the rank", "nothing was averaged"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((experts, replicas),):
'''),
    Wrong("others_not_divided", ["this is the sum over all ranks", "the gradient of inner"], '''
-                parameter.grad.div_(world.size)
+                if group is replicas:
+                    parameter.grad.div_(world.size)
'''),
    Wrong("others_over_replicas", ["averaged over the replicas of the experts only"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((experts, replicas), (others, replicas)):
@@
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(group.size if parameters is others else world.size)
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
+                torch.distributed.all_reduce(parameter.grad, group=group.handle)
'''),
    Wrong("skips_experts_without_gradient", ["gradients that some ranks do not have", "deadlock"], '''
-            if parameter.requires_grad:
+            if parameter.requires_grad and (parameter.grad is not None or group is world):
'''),
    Wrong("alone_needs_nothing", ["gradients that some ranks do not have", "takes part with zeros"], '''
-            if parameter.requires_grad:
+            if parameter.requires_grad and (parameter.grad is not None or group.size > 1):
'''),
    Wrong("skips_none", ["deadlock", "takes part with zeros"], '''
-            if parameter.requires_grad:
-                if parameter.grad is None:
-                    parameter.grad = torch.zeros_like(parameter)
+            if parameter.grad is not None:
'''),
    Wrong("swapped", ["has the wrong value"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
+    for parameters, group in ((experts, world), (others, replicas)):
'''),
    Wrong("torchs_world", ["has the wrong value"], '''
+import os
 from collections.abc import Iterable
@@
-                parameter.grad.div_(world.size)
+                parameter.grad.div_(int(os.environ["WORLD_SIZE"]))
'''),
    Wrong("twice_over", ["bytes sent over all ranks", "the experts are sent over all ranks"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
-        for parameter in parameters:
-            if parameter.requires_grad:
-                if parameter.grad is None:
-                    parameter.grad = torch.zeros_like(parameter)
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+    for parameter in experts:
+        if parameter.requires_grad:
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)
+            all_reduce(parameter.grad, replicas)
+            parameter.grad.div_(world.size)
+            all_reduce(torch.zeros_like(parameter.grad), world)
+    for parameter in others:
+        if parameter.requires_grad:
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)
+            all_reduce(parameter.grad, world, "avg")
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+                wide = parameter.grad.double()
+                all_reduce(wide, group)
+                parameter.grad.copy_(wide / world.size)
'''),
    Wrong("weights_averaged", ["this is the rank", "nothing"], '''
-    for parameters, group in ((experts, replicas), (others, world)):
-        for parameter in parameters:
-            if parameter.requires_grad:
-                if parameter.grad is None:
-                    parameter.grad = torch.zeros_like(parameter)
-                all_reduce(parameter.grad, group)  # mutate: same
-                parameter.grad.div_(world.size)
+    with torch.no_grad():
+        for parameters, group in ((experts, replicas), (others, world)):
+            for parameter in parameters:
+                all_reduce(parameter, group, "avg")
'''),
    Wrong("looks_twice", ["own gradient"], '''
+    if not [*experts, *others]:
+        return
     for parameters, group in ((experts, replicas), (others, world)):
'''),
    Wrong("new_gradient", ["is another tensor", "in place"], '''
-                parameter.grad.div_(world.size)
+                parameter.grad = parameter.grad / world.size
'''),
    Wrong("sums_a_copy", ["a copy of it was summed"], '''
-                all_reduce(parameter.grad, group)  # mutate: same
+                all_reduce(parameter.grad.contiguous(), group)
'''),
]

RIGHT = [
    Right("variant_alone_is_silent", "sends nothing in a group of one", '''
from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                if group.size > 1:
                    all_reduce(parameter.grad, group)
                parameter.grad.div_(world.size)
'''),
    Right("variant_avg_then_scale", "averages over each group, and corrects the experts afterwards", '''
from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                all_reduce(parameter.grad, group, "avg")
                parameter.grad.mul_(group.size / world.size)
'''),
    Right("variant_divides_first", "divides before the sum", '''
from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad.div_(world.size)
                all_reduce(parameter.grad, group)
'''),
    Right("variant_flat", "one message for each group", '''
from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        own = [parameter for parameter in parameters if parameter.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        flat = torch.cat([gradient.flatten() for gradient in grads]) / world.size
        all_reduce(flat, group)
        for parameter, grad, part in zip(own, grads, flat.split([p.numel() for p in own]), strict=True):
            parameter.grad = grad.copy_(part.view_as(parameter))
'''),
]
