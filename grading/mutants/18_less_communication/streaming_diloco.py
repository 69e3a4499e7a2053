"""Wrong and right answers to `streaming_diloco`: see `course dev show streaming_diloco`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("wider_wire", ["torch.float32", "they were sent in float64"], '''
-                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
+                ways = [(self.anchors[n] - self.parameters[n]).double() for n in fragment]
@@
-                self.anchors[n].grad = way
+                self.anchors[n].grad = way.to(self.anchors[n].dtype)
'''),
    Wrong("new_memory", ["the parameters have moved to other memory"], '''
-                self.parameters[n].lerp_(self.anchors[n], 1 - self.keep)
+                weight = self.parameters[n]
+                weight.data = weight.lerp(self.anchors[n], 1 - self.keep)
'''),
    Wrong("clears_gradients", ["has changed the gradients"], '''
             self.outer.zero_grad()
+            self.inner.zero_grad()
'''),
    Wrong("fragments_in_phase", ["all fragments meet after the same step"], '''
-            if (self.steps - number * self.every // len(self.fragments)) % self.every == 0:
+            if self.steps % self.every == 0:
'''),
    Wrong("rounded_before_the_product", ["round after the product"], '''
-            if (self.steps - number * self.every // len(self.fragments)) % self.every == 0:
+            if (self.steps - number * (self.every // len(self.fragments))) % self.every == 0:
'''),
    Wrong("looks_late", ["take it when the meeting begins"], '''
             for n, way in zip(fragment, ways, strict=True):
+                way = (self.anchors[n] - self.parameters[n]).detach()
+                all_reduce(way, self.group, "avg")
'''),
    Wrong("no_share", ["`keep` is ignored"], '''
-                self.parameters[n].lerp_(self.anchors[n], 1 - self.keep)
+                self.parameters[n].copy_(self.anchors[n])
'''),
    Wrong("share_turned", ["the shares are swapped"], '''
-                self.parameters[n].lerp_(self.anchors[n], 1 - self.keep)
+                self.parameters[n].lerp_(self.anchors[n], self.keep)
'''),
    Wrong("waits_at_once", ["it waits too early"], '''
                 works = [all_reduce(way, self.group, "avg", async_op=True) for way in ways]
+                for work in works:
+                    work.wait()
'''),
    Wrong("zeros_for_the_others", ["a gradient of zeros is not None"], '''
-            self.outer.zero_grad()
+            self.outer.zero_grad(set_to_none=False)
'''),
    Wrong("others_move_too", ["by old gradients"], '''
-            self.outer.zero_grad()
'''),
    Wrong("outer_made_in_each_meeting", ["lost its momentum"], '''
         self.outer = outer(self.anchors)
+        self.make = outer
@@
-            self.outer.step()
+            self.outer = self.make(self.anchors)
+            self.outer.step()
'''),
    Wrong("wrong_way", ["in the wrong direction"], '''
-                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
+                ways = [(self.parameters[n] - self.anchors[n]).detach() for n in fragment]
'''),
    Wrong("a_step_late", ["ends a step too late"], '''
-                self.under_way.append((self.steps + self.delay, fragment, ways, works))
+                self.under_way.append((self.steps + self.delay + 1, fragment, ways, works))
'''),
    Wrong("sum_not_mean", ["the sum of the differences"], '''
-                works = [all_reduce(way, self.group, "avg", async_op=True) for way in ways]
+                works = [all_reduce(way, self.group, async_op=True) for way in ways]
'''),
    Wrong("ends_one_meeting_a_step", ["several fragments may begin after the same step"], '''
-        while self.under_way and self.under_way[0][0] == self.steps:
+        if self.under_way and self.under_way[0][0] == self.steps:
'''),
    Wrong("begins_one_meeting_a_step", ["several fragments may begin after the same step"], '''
-                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
+                if self.under_way and self.under_way[-1][0] == self.steps + self.delay:
+                    continue
+                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
'''),
    Wrong("all_meet_each_time", ["all fragments meet at once"], '''
-                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
+                fragment = range(len(self.anchors))
+                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
'''),
]

RIGHT = [
    Right("flat_fragments", "one message for each fragment; a dict of what is due; an own mix", '''
from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class StreamingDiLoCo:
    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        fragments: Sequence[Sequence[int]],
        delay: int,
        keep: float,
    ) -> None:
        self.inner, self.group, self.every = inner, group, every
        self.fragments, self.delay, self.keep = fragments, delay, keep
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = outer(self.anchors)
        self.steps = 0
        self.due: dict = {}

    @torch.no_grad()
    def step(self) -> None:
        self.inner.step()
        self.steps += 1
        for f, fragment in enumerate(self.fragments):
            offset = f * self.every // len(self.fragments)
            if self.steps % self.every == offset % self.every:
                flat = torch.cat(
                    [(self.anchors[n] - self.parameters[n]).reshape(-1) for n in fragment]
                )
                work = all_reduce(flat, self.group, async_op=True)
                self.due.setdefault(self.steps + self.delay, []).append((fragment, flat, work))
        for fragment, flat, work in self.due.pop(self.steps, []):
            work.wait()
            for anchor in self.anchors:
                anchor.grad = None
            parts = (flat / self.group.size).split([self.anchors[n].numel() for n in fragment])
            for n, part in zip(fragment, parts):
                self.anchors[n].grad = part.view_as(self.anchors[n])
            self.outer.step()
            for n in fragment:
                mine, met = self.parameters[n], self.anchors[n]
                mine.copy_(self.keep * mine + (1 - self.keep) * met)
'''),
]
