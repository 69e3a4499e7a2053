"""Wrong and right answers to `one_bit_adam`: see `course dev show one_bit_adam`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("wider_wire", ["torch.float32", "they were sent in float64"], '''
-            for gradient in gradients:
-                all_reduce(gradient, self.group, "avg")
+            for gradient in gradients:
+                wide = gradient.double()
+                all_reduce(wide, self.group, "avg")
+                gradient.copy_(wide)
'''),
    Wrong("new_memory", ["the parameters have moved to other memory"], '''
-            p.sub_(self.rate / (1 - beta1**self.steps) * m / root)
+            p.data = p - self.rate / (1 - beta1**self.steps) * m / root
'''),
    Wrong("clears_gradients", ["the gradients were changed"], '''
             p.sub_(self.rate / (1 - beta1**self.steps) * m / root)
+            p.grad = None
'''),
    Wrong("second_moment_goes_on", ["it must be frozen"], '''
         else:
+            for v, g in zip(self.second, gradients, strict=True):
+                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
             self.first = self.feedback.mean(new, self.group)
-        seen = min(self.steps, self.warmup)
+        seen = self.steps
'''),
    Wrong("compresses_gradients", ["compress the first moment instead"], '''
-            self.first = self.feedback.mean(new, self.group)
+            sent = self.feedback.mean(gradients, self.group)
+            self.first = [beta1 * m + (1 - beta1) * g for m, g in zip(self.first, sent, strict=True)]
'''),
    Wrong("never_compresses", ["nothing is compressed", "whole tensors are sent"], '''
-            self.first = self.feedback.mean(new, self.group)
+            for moment in new:
+                all_reduce(moment, self.group, "avg")
+            self.first = new
'''),
    Wrong("keeps_its_own_moment", ["this rank's own first moment is kept"], '''
-            self.first = self.feedback.mean(new, self.group)
+            self.feedback.mean(new, self.group)
+            self.first = new
'''),
    Wrong("correction_goes_on", ["keep that of step w"], '''
-        seen = min(self.steps, self.warmup)
+        seen = self.steps
'''),
    Wrong("warm_for_a_step_more", ["one step too long"], '''
-        if self.steps <= self.warmup:
-            for gradient in gradients:
+        if self.steps <= self.warmup + 1:
+            for gradient in gradients:
@@
-        if self.steps <= self.warmup:
-            self.first = new
+        if self.steps <= self.warmup + 1:
+            self.first = new
@@
-        seen = min(self.steps, self.warmup)
+        seen = min(self.steps, self.warmup + 1)
'''),
    Wrong("changes_the_gradients", ["the gradients were changed"], '''
-        gradients = [p.grad.clone() for p in self.parameters if p.grad is not None]
+        gradients = [p.grad for p in self.parameters if p.grad is not None]
'''),
    Wrong("averages_gradients_always", ["gradients are averaged as well"], '''
-        if self.steps <= self.warmup:
-            for gradient in gradients:
+        if self.steps:
+            for gradient in gradients:
'''),
]

RIGHT = [
    Right("lerp", "one flat all-reduce in the warm-up; lerp for the moments", '''
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class OneBitAdam:
    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: Group,
        warmup: int,
        feedback: Any,
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters, self.group, self.warmup = list(parameters), group, warmup
        self.feedback, self.rate, self.betas, self.eps = feedback, rate, betas, eps
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]
        self.t = 0

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        b1, b2 = self.betas
        grads = [p.grad for p in self.parameters]
        if self.t <= self.warmup:
            flat = torch.cat([g.reshape(-1) for g in grads]) / self.group.size
            all_reduce(flat, self.group)
            parts = flat.split([p.numel() for p in self.parameters])
            grads = [part.view_as(p) for part, p in zip(parts, self.parameters)]
            for v, g in zip(self.v, grads):
                v.lerp_(g * g, 1 - b2)
            self.frozen = [v / (1 - b2**self.t) for v in self.v]
        self.m = [m.lerp(g, 1 - b1) for m, g in zip(self.m, grads)]
        if self.t > self.warmup:
            self.m = self.feedback.mean(self.m, self.group)
        for p, m, v in zip(self.parameters, self.m, self.frozen):
            p.addcdiv_(m, v.sqrt() + self.eps, value=-self.rate / (1 - b1**self.t))
'''),
]
