"""Wrong and right answers to `master_weight_adam`: see `course dev show master_weight_adam`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("new_masters", ["was replaced", "update them in place"], '''
-            master.sub_(self.lr * true_mean / root)
-            p.copy_(master)
+            self.masters[place] = master - self.lr * true_mean / root
+            p.copy_(self.masters[place])
'''),
    Wrong("leaves_out_zero_gradients", ["after update"], '''
-            if p.grad is None:
+            if p.grad is None or not p.grad.any():
+                p.grad = None
'''),
    Wrong("begun_anew", ["set back to the weight"], '''
             gradient, (beta1, beta2) = p.grad.float(), self.betas
+            master.copy_(p)
'''),
    Wrong("decay_in_the_gradient", ["weight decay was added to the gradient"], '''
-            master.mul_(1 - self.lr * self.weight_decay)
+            gradient = gradient + self.weight_decay * master
'''),
    Wrong("gradients_stay", ["a gradient is still there"], '''
-            p.grad = None
'''),
    Wrong("keeps_float32_gradients", ["float32 gradients are kept"], '''
         self.squares = [torch.zeros_like(master) for master in self.masters]
+        self.gradients = [torch.zeros_like(master) for master in self.masters]
@@
             gradient, (beta1, beta2) = p.grad.float(), self.betas
+            self.gradients[place].copy_(gradient)
'''),
    Wrong("keeps_old_weights", ["copies of 16 bits are kept"], '''
         self.squares = [torch.zeros_like(master) for master in self.masters]
+        self.old = [p.detach().clone() for p in self.parameters]
'''),
    Wrong("master_is_the_weight", ["has the wrong dtype"], '''
-        self.masters = [p.detach().float() for p in self.parameters]
+        self.masters = [p.detach() for p in self.parameters]
@@
-            gradient, (beta1, beta2) = p.grad.float(), self.betas
+            gradient, (beta1, beta2) = p.grad, self.betas
'''),
    Wrong("master_rounded", ["the master was rounded"], '''
             p.copy_(master)
+            master.copy_(p)
'''),
    Wrong("missing_is_zero", ["after update"], '''
-            if p.grad is None:
-                continue
-            gradient, (beta1, beta2) = p.grad.float(), self.betas
+            gradient, (beta1, beta2) = torch.zeros_like(master), self.betas
+            if p.grad is not None:
+                gradient = p.grad.float()
'''),
    Wrong("moments_in_16_bits", ["has the wrong dtype"], '''
-        self.means = [torch.zeros_like(master) for master in self.masters]
-        self.squares = [torch.zeros_like(master) for master in self.masters]
+        self.means = [torch.zeros_like(p) for p in self.parameters]
+        self.squares = [torch.zeros_like(p) for p in self.parameters]
@@
-            mean.lerp_(gradient, 1 - beta1)
+            mean.lerp_(gradient.to(mean.dtype), 1 - beta1)
'''),
    Wrong("new_memory", ["memory was replaced"], '''
-            p.copy_(master)
+            p.data = master.to(p.dtype)
'''),
    Wrong("no_correction", ["the bias correction is missing"], '''
-            true_mean = mean / (1 - beta1 ** self.steps[place])
-            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
+            true_mean = mean
+            root = square.sqrt() + self.eps
'''),
    Wrong("one_count_for_all", ["each parameter has its own t"], '''
             if p.grad is None:
+                self.steps[place] += 1
'''),
    Wrong("square_in_16_bits", ["the square was taken in 16 bits"], '''
-            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
+            square.mul_(beta2).add_((p.grad * p.grad).float(), alpha=1 - beta2)
'''),
    Wrong("updates_in_16_bits", ["has the wrong dtype"], '''
-        self.masters = [p.detach().float() for p in self.parameters]
+        self.masters = [p.detach().clone() for p in self.parameters]
@@
-            gradient, (beta1, beta2) = p.grad.float(), self.betas
+            gradient, (beta1, beta2) = p.grad, self.betas
'''),
    Wrong("weights_forgotten", ["the weights never changed"], '''
-            p.copy_(master)
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.optim.AdamW"], '''
         self.masters = [p.detach().float() for p in self.parameters]
+        self.inner = torch.optim.AdamW(self.masters, lr=self.lr, betas=self.betas, eps=self.eps,
+                                       weight_decay=self.weight_decay)
@@
-            gradient, (beta1, beta2) = p.grad.float(), self.betas
-            self.steps[place] += 1
-            master.mul_(1 - self.lr * self.weight_decay)
-            mean.lerp_(gradient, 1 - beta1)
-            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
-            true_mean = mean / (1 - beta1 ** self.steps[place])
-            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
-            master.sub_(self.lr * true_mean / root)
-            p.copy_(master)
-            p.grad = None
+            master.grad = p.grad.float()
+        self.inner.step()
+        for place, p in enumerate(self.parameters):
+            master, p.grad = self.masters[place], None
+            master.grad = None
+            p.copy_(master)
+            if master in self.inner.state:
+                self.means[place].copy_(self.inner.state[master]["exp_avg"])
+                self.squares[place].copy_(self.inner.state[master]["exp_avg_sq"])
'''),
]

RIGHT = [
    Right("variant_formula", "the formulas as they stand, one line each", '''
from collections.abc import Iterable

import torch
from torch import nn


class MasterWeightAdam:
    """AdamW over float32 masters of 16-bit parameters.

    Args:
        parameters: bf16 or fp16; may be a generator.
        lr: the learning rate.
        betas: of the mean and of the square.
        eps: added to the root.
        weight_decay: see above.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        self.means = [torch.zeros_like(master) for master in self.masters]
        self.squares = [torch.zeros_like(master) for master in self.masters]
        self.steps = [0] * len(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Updates the masters, and the parameters from them."""
        state = zip(self.parameters, self.masters, self.means, self.squares, strict=True)
        for place, (p, master, mean, square) in enumerate(state):
            if p.grad is None:
                continue
            gradient, (beta1, beta2) = p.grad.float(), self.betas
            self.steps[place] += 1
            mean[...] = beta1 * mean + (1 - beta1) * gradient
            square[...] = beta2 * square + (1 - beta2) * gradient**2
            true_mean = mean / (1 - beta1 ** self.steps[place])
            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
            decayed = master - self.lr * self.weight_decay * master
            master[...] = decayed - self.lr * true_mean / root
            p.data.copy_(master.to(p.dtype))
            p.grad = None
'''),
    Right("variant_running_factors", "the factors of the corrections are multiplied up, not raised", '''
import torch


class MasterWeightAdam:
    def __init__(self, parameters, lr, betas, eps, weight_decay):
        self.parameters = [*parameters]
        self.masters = [p.detach().clone().to(torch.float32) for p in self.parameters]
        self.means = [master * 0 for master in self.masters]
        self.squares = [master * 0 for master in self.masters]
        self.factors = [(1.0, 1.0)] * len(self.parameters)
        self.options = lr, betas, eps, weight_decay

    def update(self, i, gradient):
        lr, (beta1, beta2), eps, decay = self.options
        first, second = self.factors[i]
        self.factors[i] = first, second = first * beta1, second * beta2
        mean, square = self.means[i], self.squares[i]
        mean += (1 - beta1) * (gradient - mean)
        square += (1 - beta2) * (gradient.square() - square)
        ratio = mean / (1 - first) / (torch.sqrt(square / (1 - second)) + eps)
        self.masters[i] -= lr * decay * self.masters[i]
        self.masters[i] -= lr * ratio

    def step(self):
        for i, p in enumerate(self.parameters):
            if p.grad is not None:
                self.update(i, p.grad.to(torch.float32))
                p.data.copy_(self.masters[i])
                p.grad = None
'''),
    Right("variant_step_size", "the corrections in the step size, new tensors copied into the lists' own", '''
from collections.abc import Iterable

import torch
from torch import nn


class MasterWeightAdam:
    """AdamW over float32 masters of 16-bit parameters.

    Args:
        parameters: bf16 or fp16; may be a generator.
        lr: the learning rate.
        betas: of the mean and of the square.
        eps: added to the root.
        weight_decay: see above.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        self.means = [torch.zeros_like(master) for master in self.masters]
        self.squares = [torch.zeros_like(master) for master in self.masters]
        self.steps = [0] * len(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Updates the masters, and the parameters from them."""
        state = zip(self.parameters, self.masters, self.means, self.squares, strict=True)
        for place, (p, master, mean, square) in enumerate(state):
            if p.grad is None:
                continue
            gradient, (beta1, beta2) = p.grad.float(), self.betas
            self.steps[place] += 1
            mean.copy_(torch.lerp(gradient, mean, beta1))
            square.copy_(torch.lerp(gradient * gradient, square, beta2))
            rate = self.lr / (1 - beta1 ** self.steps[place])
            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
            kept = master * (1 - self.lr * self.weight_decay)
            master.copy_(kept - rate * mean / root)
            p.copy_(master)
            p.grad = None
'''),
]
