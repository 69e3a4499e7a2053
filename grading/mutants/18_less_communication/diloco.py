"""Wrong and right answers to `diloco`: see `course dev show diloco`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("outer_called_again", ["objects have called `outer`", "call it once"], '''
         self.outer = outer(self.anchors)
+        self.lr = outer(self.anchors).param_groups[0]["lr"]
'''),
    Wrong("wider_wire", ["bytes sent in step 2 in torch.bfloat16"], '''
-            all_reduce(anchor.grad, self.group, "avg")
+            wide = anchor.grad.double()
+            all_reduce(wide, self.group, "avg")
+            anchor.grad = wide.to(anchor.dtype)
'''),
    Wrong("broadcasts_a_copy", ["`contiguous()` made a copy"], '''
-            broadcast(parameter.detach(), 0, group)
+            broadcast(parameter.detach().contiguous(), 0, group)
'''),
    Wrong("anchors_on_the_class", ["the weights after step"], '''
-        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
+        type(self).anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
'''),
    Wrong("clears_gradients", ["has changed the gradients"], '''
         self.outer.step()
+        self.inner.zero_grad()
'''),
    Wrong("no_gradient_no_meeting", ["do not fit"], '''
         for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
+            if parameter.grad is None:
+                continue
             anchor.grad = anchor - parameter
'''),
    Wrong("wrong_way", ["in the wrong direction"], '''
-            anchor.grad = anchor - parameter
+            anchor.grad = parameter - anchor
'''),
    Wrong("sum_not_mean", ["the sum of the differences"], '''
-            all_reduce(anchor.grad, self.group, "avg")
+            all_reduce(anchor.grad, self.group)
'''),
    Wrong("outer_made_in_each_meeting", ["lost its momentum"], '''
         self.outer = outer(self.anchors)
+        self.make_outer = outer
@@
-        self.outer.step()
+        self.outer = self.make_outer(self.anchors)
+        self.outer.step()
'''),
    Wrong("gradients_add_up", ["add up over the meetings"], '''
-            anchor.grad = anchor - parameter
-            all_reduce(anchor.grad, self.group, "avg")
+            way = anchor - parameter
+            all_reduce(way, self.group, "avg")
+            anchor.grad = way if anchor.grad is None else anchor.grad + way
'''),
    Wrong("outer_step_on_averaged_weights", ["began at the mean of the weights"], '''
-        self.outer.step()
+        for anchor in self.anchors:
+            anchor.sub_(anchor.grad)
+        self.outer.step()
'''),
    Wrong("local_sgd", ["the outer optimizer takes the step"], '''
-            anchor.grad = anchor - parameter
-            all_reduce(anchor.grad, self.group, "avg")
-        self.outer.step()
-        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
-            parameter.copy_(anchor)
+            all_reduce(parameter, self.group, "avg")
'''),
    Wrong("averages_moments", ["the inner optimizers' moments were averaged"], '''
         self.outer.step()
+        for parameter in self.parameters:
+            for value in self.inner.state[parameter].values():
+                if torch.is_tensor(value) and value.dim():
+                    all_reduce(value, self.group, "avg")
'''),
    Wrong("forgets_moments", ["was thrown away"], '''
         self.outer.step()
+        self.inner.state.clear()
'''),
    Wrong("anchors_before_the_broadcast", ["weights after step 2"], '''
-        for parameter in self.parameters:
-            broadcast(parameter.detach(), 0, group)
         self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
+        for parameter in self.parameters:
+            broadcast(parameter.detach(), 0, group)
'''),
    Wrong("own_starts", ["construction are not those of index 0"], '''
-        for parameter in self.parameters:
-            broadcast(parameter.detach(), 0, group)
+        for parameter in self.parameters:
+            broadcast(parameter.detach().clone(), 0, group)
'''),
    Wrong("anchors_are_the_parameters", ["weights after step 2"], '''
-        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
+        self.anchors = [nn.Parameter(p.detach()) for p in self.parameters]
'''),
    Wrong("ranks_go_on_from_their_own", ["weights after step 2"], '''
-        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
-            parameter.copy_(anchor)
+        pass
'''),
    Wrong("own_gradient_alone", ["nothing is sent, although a meeting is due"], '''
-            all_reduce(anchor.grad, self.group, "avg")
'''),
    Wrong("meets_too_early", ["after steps 1, H + 1"], '''
-        if self.steps % self.every:
+        if self.steps % self.every != 1 % self.every:
'''),
    Wrong("float32_on_the_wire", ["float32"], '''
-            all_reduce(anchor.grad, self.group, "avg")
+            small = anchor.grad.float()
+            all_reduce(small, self.group, "avg")
+            anchor.grad.copy_(small)
'''),
    Wrong("result_is_sent_again", ["the result is sent again"], '''
             parameter.copy_(anchor)
+            all_reduce(parameter, self.group, "avg")
'''),
]

RIGHT = [
    Right("mean_of_weights_first", "all-reduces the weights themselves, and subtracts afterwards", '''
from collections.abc import Callable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DiLoCo:
    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.inner, self.group, self.left, self.every = inner, group, every, every
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        self.met = []
        for parameter in self.parameters:
            broadcast(parameter.data, 0, group)
            self.met.append(nn.Parameter(parameter.data.clone()))
        self.outer = outer(self.met)

    def step(self) -> None:
        self.inner.step()
        self.left -= 1
        if self.left == 0:
            self.left = self.every
            for parameter, met in zip(self.parameters, self.met):
                all_reduce(parameter.data, self.group, "avg")
                met.grad = met.data - parameter.data
            self.outer.step()
            for parameter, met in zip(self.parameters, self.met):
                parameter.data.copy_(met.data)
'''),
    Right("flat", "one message; the differences are divided before they are sent", '''
from collections.abc import Callable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DiLoCo:
    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.inner, self.group, self.every, self.count = inner, group, every, 0
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        self.anchors = [p.detach().clone().requires_grad_() for p in self.parameters]
        self.outer = outer(self.anchors)

    @torch.no_grad()
    def step(self) -> None:
        self.inner.step()
        self.count += 1
        if self.count % self.every == 0:
            pairs = list(zip(self.anchors, self.parameters))
            flat = torch.cat([(a - p).reshape(-1) for a, p in pairs]) / self.group.size
            all_reduce(flat, self.group)
            for anchor, part in zip(self.anchors, flat.split([a.numel() for a, _ in pairs])):
                anchor.grad = part.view_as(anchor).clone()
            self.outer.step()
            self.outer.zero_grad()
            for anchor, parameter in pairs:
                parameter.copy_(anchor)
'''),
    Right("begun_together", "all differences are under way before the first is waited for", '''
from collections.abc import Callable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DiLoCo:
    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.inner, self.group, self.every, self.count = inner, group, every, 0
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = outer(self.anchors)

    @torch.no_grad()
    def step(self) -> None:
        self.inner.step()
        self.count = (self.count + 1) % self.every
        if self.count:
            return
        works = []
        for anchor, parameter in zip(self.anchors, self.parameters):
            anchor.grad = anchor.detach() - parameter.detach()
            works.append(all_reduce(anchor.grad, self.group, "avg", async_op=True))
        for work in works:
            work.wait()
        self.outer.step()
        for anchor, parameter in zip(self.anchors, self.parameters):
            parameter.copy_(anchor)
'''),
]
