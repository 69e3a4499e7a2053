"""Wrong and right answers to `tenth_of_the_bytes`: `course dev show tenth_of_the_bytes`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("ddp", ["the percentage of DDP's bytes", "the ranks communicate in every step"], '''
-from course_lib.comm import Group, all_gather
+from course_lib.comm import Group, all_gather, all_reduce
@@
         for weight, gradient in zip(self.weights, gradients, strict=True):
-            weight.grad = gradient
+            mean = gradient.float()
+            all_reduce(mean, self.group, "avg")
+            weight.grad = mean.double()
         self.inner.step()
-        self.steps += 1
-        if self.steps % EVERY == 0:
-            self._meet()
'''),
    Wrong("the_lessons_local_sgd", ["the percentage of DDP's bytes", "meet more rarely"], '''
-from course_lib.comm import Group, all_gather
+from course_lib.comm import Group, all_gather, all_reduce
@@
-        if self.steps % EVERY == 0:
-            self._meet()
+        if self.steps % 5 == 0:
+            for weight in self.weights:
+                mean = weight.float()
+                all_reduce(mean, self.group, "avg")
+                weight.copy_(mean)
'''),
    Wrong("each_alone", ["nothing is sent: each rank learns only from its own data"], '''
-        if self.steps % EVERY == 0:
-            self._meet()
'''),
    Wrong("anchors_that_nobody_takes", ["not all ranks reach the loss"], '''
-            self.weights[n].copy_(self.anchors[n])
'''),
    Wrong("weights_of_its_own", ["still those of the start: change them in place"], '''
-        self.weights, self.group, self.steps = weights, group, 0
-        self.inner = torch.optim.Adam(weights, lr=RATE)
+        self.weights, self.group, self.steps = [w.clone() for w in weights], group, 0
+        self.inner = torch.optim.Adam(self.weights, lr=RATE)
'''),
    Wrong("the_wrong_way", ["not all ranks reach the loss", "training diverges"], '''
-        ways = [a - w for a, w in zip(self.anchors, self.weights, strict=True)]
+        ways = [w - a for a, w in zip(self.anchors, self.weights, strict=True)]
'''),
    Wrong("once", ["not all ranks reach the loss", "too rarely"], '''
-EVERY, RATE = 40, 0.02  # steps between two meetings; the inner learning rate
+EVERY, RATE = 360, 0.02
'''),
]

RIGHT = [
    Right("trivial", "local SGD: the mean of the weights in float32, every 40 steps", '''
import torch
from course_lib.comm import all_reduce


class Worker:
    def __init__(self, weights, group):
        self.weights, self.group, self.steps = weights, group, 0
        self.inner = torch.optim.Adam(weights, lr=0.01)

    def step(self, gradients):
        for weight, gradient in zip(self.weights, gradients):
            weight.grad = gradient
        self.inner.step()
        self.steps += 1
        if self.steps % 40 == 0:
            for weight in self.weights:
                mean = weight.float()
                all_reduce(mean, self.group, "avg")
                weight.copy_(mean)
'''),
    Right("outer_momentum", "DiLoCo in float32, every 40 steps, with faster inner steps", '''
import torch
from course_lib import comm


class Worker:
    def __init__(self, weights, group):
        self.weights, self.group, self.count = weights, group, 0
        self.inner = torch.optim.Adam(weights, lr=0.02)
        self.anchors = [w.clone() for w in weights]
        self.outer = torch.optim.SGD(self.anchors, lr=0.7, momentum=0.5, nesterov=True)

    def step(self, gradients):
        for weight, gradient in zip(self.weights, gradients):
            weight.grad = gradient
        self.inner.step()
        self.count += 1
        if self.count % 40 == 0:
            for anchor, weight in zip(self.anchors, self.weights):
                way = (anchor - weight).float()
                comm.all_reduce(way, self.group, "avg")
                anchor.grad = way.double()
            self.outer.step()
            for anchor, weight in zip(self.anchors, self.weights):
                weight.copy_(anchor)
'''),
]
