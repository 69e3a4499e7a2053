"""Wrong and right answers to `muon`: see `course dev show muon`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("whole_ratio", ["the weight of"], '''
-            scale = max(1.0, rows / columns) ** 0.5
+            scale = max(1, rows // columns) ** 0.5
'''),
    Wrong("frozen_embeddings_too", ["a frozen parameter is in it"], '''
-        if parameter.requires_grad:
+        if parameter.requires_grad or id(parameter) in outside:
'''),
    Wrong("zeros_are_no_gradient", ["the weight of"], '''
-            if parameter.grad is None:
+            if parameter.grad is None or not parameter.grad.any():
'''),
    Wrong("no_momentum_is_the_default", ["'momentum': 0.0"], '''
-        self.lr, self.momentum, self.weight_decay, self.steps = lr, momentum, weight_decay, steps
+        self.lr, self.momentum, self.weight_decay = lr, momentum or 0.95, weight_decay
+        self.steps = steps
'''),
    Wrong("moments_in_float64", ["the number of bytes", "or one in another dtype"], '''
-        self.moments = [torch.zeros_like(p) for p in self.params]
+        self.moments = [torch.zeros_like(p, dtype=torch.float64) for p in self.params]
@@
-            direction = parameter.grad + self.momentum * moment
+            direction = (parameter.grad + self.momentum * moment).to(parameter.dtype)
'''),
    Wrong("no_subclasses", ["it is tied to places"], '''
-    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
+    embeddings = [m for m in model.modules() if type(m) is nn.Embedding]
'''),
    Wrong("by_name", ["it is tied to places"], '''
-    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
-    outside = {id(p) for module in (*ends, *embeddings) for p in module.parameters()}
+    tables = {n + ".weight" for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
+    outside = {id(p) for name, p in model.named_parameters() if name in tables}
+    outside |= {id(p) for module in ends for p in module.parameters()}
'''),
    Wrong("not_inside_of_ends", ["the output layer is one of `ends`"], '''
-    outside = {id(p) for module in (*ends, *embeddings) for p in module.parameters()}
+    outside = {id(p) for m in (*ends, *embeddings) for p in m.parameters(recurse=False)}
'''),
    Wrong("momentum_is_the_gradient", ["the weight of", "a gradient has changed"], '''
-        self.moments = [torch.zeros_like(p) for p in self.params]
+        self.moments = [None] * len(self.params)
@@
-        for parameter, moment in zip(self.params, self.moments, strict=True):
-            if parameter.grad is None:
-                continue
-            moment.mul_(self.momentum).add_(parameter.grad)
+        for i, parameter in enumerate(self.params):
+            if parameter.grad is None:
+                continue
+            if self.moments[i] is None:
+                self.moments[i] = parameter.grad
+            else:
+                self.moments[i].mul_(self.momentum).add_(parameter.grad)
+            moment = self.moments[i]
'''),
    Wrong("moments_on_the_class", ["after 1 steps"], '''
-        self.moments = [torch.zeros_like(p) for p in self.params]
+        type(self).moments = [torch.zeros_like(p) for p in self.params]
'''),
    Wrong("embeddings_too", ["an embedding's rows belong to tokens"], '''
-    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
+    embeddings = []
'''),
    Wrong("output_layer_too", ["the output layer is one of `ends`"], '''
-    outside = {id(p) for module in (*ends, *embeddings) for p in module.parameters()}
+    outside = {id(p) for module in embeddings for p in module.parameters()}
'''),
    Wrong("norms_too", ["it is a vector"], '''
-            inside = parameter.dim() == 2 and id(parameter) not in outside
+            inside = parameter.dim() <= 2 and id(parameter) not in outside
'''),
    Wrong("numbers_too", ["a single number is not a matrix"], '''
-            inside = parameter.dim() == 2 and id(parameter) not in outside
+            inside = parameter.dim() in (0, 2) and id(parameter) not in outside
'''),
    Wrong("frozen_too", ["frozen"], '''
-        if parameter.requires_grad:
+        if parameter is not None:
'''),
    Wrong("no_scale", ["the scale for the shape is missing"], '''
-            scale = max(1.0, rows / columns) ** 0.5
+            scale = 1.0
'''),
    Wrong("transposed_scale", ["rows and columns are swapped"], '''
-            scale = max(1.0, rows / columns) ** 0.5
+            scale = max(1.0, columns / rows) ** 0.5
'''),
    Wrong("scale_below_one", ["the scale is below 1"], '''
-            scale = max(1.0, rows / columns) ** 0.5
+            scale = (rows / columns) ** 0.5
'''),
    Wrong("no_nesterov", ["Nesterov's look-ahead is missing"], '''
-            direction = parameter.grad + self.momentum * moment
+            direction = moment
'''),
    Wrong("orthogonal_first", ["momentum comes first"], '''
-            moment.mul_(self.momentum).add_(parameter.grad)
-            direction = parameter.grad + self.momentum * moment
+            gradient = newton_schulz(parameter.grad, self.steps)
+            moment.mul_(self.momentum).add_(gradient)
+            direction = gradient + self.momentum * moment
@@
-            parameter.add_(newton_schulz(direction, self.steps), alpha=-self.lr * scale)
+            parameter.add_(direction, alpha=-self.lr * scale)
'''),
    Wrong("gradient_changed", ["a gradient has changed"], '''
-            direction = parameter.grad + self.momentum * moment
+            direction = parameter.grad.add_(moment, alpha=self.momentum)
'''),
    Wrong("decay_inside", ["weight decay was added to the direction"], '''
-            parameter.mul_(1 - self.lr * self.weight_decay)
+            direction = direction + self.weight_decay * parameter
'''),
    Wrong("second_moment", ["more than one momentum"], '''
         self.moments = [torch.zeros_like(p) for p in self.params]
+        self.squares = [torch.zeros_like(p) for p in self.params]
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.optim.Muon"], '''
-        self.params = list(params)
-        self.lr, self.momentum, self.weight_decay, self.steps = lr, momentum, weight_decay, steps
-        self.moments = [torch.zeros_like(p) for p in self.params]
+        self.inner = torch.optim.Muon(
+            params, lr, weight_decay, momentum=momentum, nesterov=True, ns_steps=steps
+        )
@@
-        for parameter, moment in zip(self.params, self.moments, strict=True):
-            if parameter.grad is None:
-                continue
-            moment.mul_(self.momentum).add_(parameter.grad)
-            direction = parameter.grad + self.momentum * moment
-            rows, columns = parameter.shape
-            scale = max(1.0, rows / columns) ** 0.5
-            parameter.mul_(1 - self.lr * self.weight_decay)
-            parameter.add_(newton_schulz(direction, self.steps), alpha=-self.lr * scale)
+        self.inner.step()
'''),
]

RIGHT = [
    Right("variant_optimizer", "an optimizer of torch's, with state made at the first step", '''
import torch
from torch import nn

from course_lib.parallel import newton_schulz


def muon_parameters(model, ends):
    outside = [p for end in ends for p in end.parameters()]
    outside += [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim == 2 and not any(p is o for o in outside)]
    return matrices, [p for p in trained if not any(p is m for m in matrices)]


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, steps=5):
        super().__init__(params, {"lr": lr, "mu": momentum, "decay": weight_decay, "steps": steps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                old = self.state[w].get("M", torch.zeros_like(w))
                new = self.state[w]["M"] = w.grad + group["mu"] * old
                made = newton_schulz(torch.add(w.grad, new, alpha=group["mu"]), group["steps"])
                made *= max(w.shape[0] / w.shape[1], 1) ** 0.5
                w.sub_(group["lr"] * (group["decay"] * w + made))
'''),
    Right("variant_dict", "moments in a dict, made when they are needed; decay and update in one", '''
import math

import torch
from torch import nn

from course_lib.parallel import newton_schulz


def muon_parameters(model, ends):
    forbidden = {p for end in ends for p in end.parameters()}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            forbidden.add(module.weight)
    matrices, rest = [], []
    for p in (p for p in model.parameters() if p.requires_grad):
        if p.ndim != 2 or p in forbidden:
            rest += [p]
        else:
            matrices += [p]
    return matrices, rest


class Muon:
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, steps=5):
        self.params, self.moments = list(params), dict()
        self.options = lr, momentum, weight_decay, steps

    def step(self):
        lr, mu, decay, steps = self.options
        with torch.no_grad():
            for p in self.params:
                g = p.grad
                if g is not None:
                    m = mu * self.moments[p] + g if p in self.moments else g.clone()
                    self.moments[p] = m
                    factor = math.sqrt(max(1.0, p.shape[0] / p.shape[1]))
                    p.copy_((1 - lr * decay) * p - lr * factor * newton_schulz(g + mu * m, steps))
'''),
    Right("variant_own_iteration", "Newton-Schulz written again; an update by add", '''
import torch
from torch import nn


def muon_parameters(model, ends):
    forbidden = {p for end in ends for p in end.parameters()}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            forbidden.add(module.weight)
    matrices, rest = [], []
    for p in (p for p in model.parameters() if p.requires_grad):
        if p.ndim != 2 or p in forbidden:
            rest += [p]
        else:
            matrices += [p]
    return matrices, rest


def orthogonal(x, steps):
    if x.shape[0] > x.shape[1]:
        return orthogonal(x.T, steps).T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        g = x @ x.T
        x = 3.4445 * x + (-4.7750 * g + 2.0315 * g @ g) @ x
    return x


class Muon:
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, steps=5):
        self.pairs = [(p, p.detach().new_zeros(p.shape)) for p in params]
        self.lr, self.mu, self.decay, self.steps = lr, momentum, weight_decay, steps

    @torch.no_grad()
    def step(self):
        for p, m in self.pairs:
            if p.grad is None:
                continue
            m.copy_(torch.add(p.grad, m, alpha=self.mu))
            d = torch.add(p.grad, m, alpha=self.mu)
            size = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
            p.mul_(1.0 - self.lr * self.decay)
            p.sub_(self.lr * size * orthogonal(d, self.steps))
'''),
]
