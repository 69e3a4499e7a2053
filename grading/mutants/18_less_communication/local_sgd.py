"""Wrong and right answers to `local_sgd`: see `course dev show local_sgd`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("averages_in_float32", ["as large as float32's rounding"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    narrow = parameter.detach().float()
+                    all_reduce(narrow, self.group, "avg")
+                    parameter.data.copy_(narrow)
'''),
    Wrong("wider_wire", ["bytes sent in step 3 in torch.bfloat16"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    wide = parameter.detach().double()
+                    all_reduce(wide, self.group, "avg")
+                    parameter.data.copy_(wide)
'''),
    Wrong("averages_a_copy", ["`contiguous()` made a copy"], '''
-            broadcast(parameter.detach(), 0, group)
+            broadcast(parameter.detach().contiguous(), 0, group)
@@
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    all_reduce(parameter.detach().contiguous(), self.group, "avg")
'''),
    Wrong("not_averaged_in_bfloat16", ["in bfloat16"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    mean = parameter.detach()
+                    mean = mean.clone() if mean.dtype == torch.bfloat16 else mean
+                    all_reduce(mean, self.group, "avg")
'''),
    Wrong("clears_gradients", ["has changed the gradients"], '''
         if self.steps % self.every == 0:
+            self.zero_grad()
'''),
    Wrong("no_gradient_no_meeting", ["do not fit"], '''
-                if parameter.requires_grad:
+                if parameter.grad is not None:
'''),
    Wrong("averages_gradients", ["that is DDP"], '''
-        self.optimizer.step()
-        self.steps += 1
-        if self.steps % self.every == 0:
-            for parameter in self.parameters:
-                if parameter.requires_grad:
-                    all_reduce(parameter.detach(), self.group, "avg")
+        for parameter in self.parameters:
+            if parameter.requires_grad:
+                all_reduce(parameter.grad, self.group, "avg")
+        self.optimizer.step()
'''),
    Wrong("averages_moments", ["was averaged: it must follow this rank's own gradients", "each rank keeps its own"], '''
                     all_reduce(parameter.detach(), self.group, "avg")
+                    for value in self.optimizer.state[parameter].values():
+                        if torch.is_tensor(value) and value.dim():
+                            all_reduce(value, self.group, "avg")
'''),
    Wrong("forgets_moments", ["thrown away in the meeting"], '''
         if self.steps % self.every == 0:
+            self.optimizer.state.clear()
'''),
    Wrong("meets_too_early", ["after steps 1, H + 1"], '''
-        self.steps += 1
-        if self.steps % self.every == 0:
+        self.steps += 1
+        if self.steps % self.every == 1:
'''),
    Wrong("sum_not_mean", ["this is the sum of the weights"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    all_reduce(parameter.detach(), self.group)
'''),
    Wrong("own_starts", ["began with different weights"], '''
-        for parameter in self.parameters:
-            broadcast(parameter.detach(), 0, group)
'''),
    Wrong("frozen_begins_apart", ["it was not broadcast: replicas must begin equal"], '''
-            broadcast(parameter.detach(), 0, group)
+            if parameter.requires_grad:
+                broadcast(parameter.detach(), 0, group)
'''),
    Wrong("frozen_is_sent", ["the frozen parameter is sent as well"], '''
-                if parameter.requires_grad:
-                    all_reduce(parameter.detach(), self.group, "avg")
+                all_reduce(parameter.detach(), self.group, "avg")
'''),
    Wrong("meets_in_every_step", ["after step 1 of SGD"], '''
-        if self.steps % self.every == 0:
+        if self.steps % 1 == 0:
'''),
    Wrong("matrices_alone", ["only matrices were averaged"], '''
-                if parameter.requires_grad:
+                if parameter.requires_grad and parameter.dim() == 2:
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    small = parameter.detach().float()
+                    all_reduce(small, self.group, "avg")
+                    parameter.data.copy_(small)
'''),
    Wrong("one_rank_counts_otherwise", ["deadlock"], '''
-        if self.steps % self.every == 0:
+        if (self.steps + self.group.index) % self.every == 0:
'''),
    Wrong("new_memory", ["have moved to other memory"], '''
-                    all_reduce(parameter.detach(), self.group, "avg")
+                    mean = parameter.detach().clone()
+                    all_reduce(mean, self.group, "avg")
+                    parameter.data = mean
'''),
]

RIGHT = [
    Right("flat", "all parameters in one message; a countdown", '''
from typing import Any

import torch

from course_lib.comm import Group, all_reduce, broadcast


class LocalSGD:
    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.optimizer, self.group, self.every = optimizer, group, every
        self.left = every
        self.all = [p for options in optimizer.param_groups for p in options["params"]]
        with torch.no_grad():
            for parameter in self.all:
                broadcast(parameter, 0, group)

    @torch.no_grad()
    def step(self) -> None:
        self.optimizer.step()
        self.left -= 1
        if self.left:
            return
        self.left = self.every
        trained = [p for p in self.all if p.requires_grad]
        flat = torch.cat([p.reshape(-1) for p in trained]) / self.group.size
        all_reduce(flat, self.group)
        for parameter, part in zip(trained, flat.split([p.numel() for p in trained])):
            parameter.copy_(part.view_as(parameter))

    def zero_grad(self, *args: Any) -> None:
        self.optimizer.zero_grad(*args)
'''),
    Right("own_ring", "the ring of lesson 01, which works in place", '''
from typing import Any

import torch

from course_lib.comm import Group, broadcast, ring_all_reduce


class LocalSGD:
    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.optimizer, self.group, self.every = optimizer, group, every
        self.count = 0
        for options in optimizer.param_groups:
            for parameter in options["params"]:
                broadcast(parameter.data, 0, group)

    def step(self) -> None:
        self.optimizer.step()
        self.count = (self.count + 1) % self.every
        if self.count == 0:
            for options in self.optimizer.param_groups:
                for parameter in options["params"]:
                    if parameter.requires_grad:
                        ring_all_reduce(parameter.data, self.group, "avg")

    def zero_grad(self, *args: Any) -> None:
        self.optimizer.zero_grad(*args)
'''),
    Right("all_at_once", "all means begun before the first is waited for", '''
from typing import Any

import torch

from course_lib.comm import Group, all_reduce, broadcast


class LocalSGD:
    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.optimizer, self.group, self.every = optimizer, group, every
        self.done = 0
        for parameter in self._all():
            broadcast(parameter.detach(), 0, group)

    def _all(self) -> list[Any]:
        return [p for options in self.optimizer.param_groups for p in options["params"]]

    def step(self) -> None:
        self.optimizer.step()
        self.done += 1
        if not self.done % self.every:
            works = [
                all_reduce(p.detach(), self.group, "avg", async_op=True)
                for p in self._all()
                if p.requires_grad
            ]
            for work in works:
                work.wait()

    def zero_grad(self, *args: Any) -> None:
        self.optimizer.zero_grad(*args)
'''),
]
