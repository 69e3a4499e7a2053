"""Wrong and right answers to `sync_batch_norm`: see `course dev show sync_batch_norm`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("evaluates_without_gradients", ["training mode counts"], '''
-        if self.training:
+        if self.training and torch.is_grad_enabled():
'''),
    Wrong("unbiased_from_three_rows", ["running_var after 1 batches with 1 + 1 rows"], '''
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                self.running_var.lerp_(var * n / (n - 1).clamp(min=2), self.momentum)
'''),
    Wrong("an_empty_rank_keeps_its_statistics", ["running_mean after 1 batches with 4 + 1 + 0 + 6 rows"], '''
-            with torch.no_grad():
-                self.running_mean.lerp_(mean, self.momentum)
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+            with torch.no_grad():
+                if len(x):
+                    self.running_mean.lerp_(mean, self.momentum)
+                    self.running_var.lerp_(var * n / (n - 1), self.momentum)
'''),
    Wrong("average_backward", ["the input's gradient with 5 + 2 rows", "wrong value"], '''
-        all_reduce(total, ctx.group)
+        all_reduce(total, ctx.group, "avg")
'''),
    Wrong("averages_means_and_variances", ["means and variances were averaged"], '''
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
-            n = sums[-1].detach()
-            mean, square = (sums[:-1] / n).chunk(2)
-            var = square - mean.square()
+            n = x.new_tensor(max(2, self.group.size * len(x)))
+            x_ = x if len(x) else x.new_zeros(1, x.shape[1])
+            parts = torch.cat([x_.mean(0), x_.var(0, correction=0)])
+            mean, var = (SumOverRanks.apply(parts, self.group) / self.group.size).chunk(2)
'''),
    Wrong("averages_variances", ["the ranks' variances were averaged"], '''
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
-            n = sums[-1].detach()
-            mean, square = (sums[:-1] / n).chunk(2)
-            var = square - mean.square()
+            if not len(x):
+                x = x.new_zeros(1, x.shape[1])
+            local = x - x.mean(0)
+            parts = torch.cat([x.sum(0), local.square().mean(0), x.new_tensor([len(x), 1.0])])
+            sums = SumOverRanks.apply(parts, self.group)
+            n = sums[-2].detach()
+            mean = sums[: x.shape[1]] / n
+            var = sums[x.shape[1] : -2] / sums[-1].detach()
'''),
    Wrong("biased_running_var", ["the biased variance", "running_var"], '''
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                self.running_var.lerp_(var, self.momentum)
'''),
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
-        all_reduce(total, group)
+        torch.distributed.all_reduce(total, group=group.handle)
'''),
    Wrong("constant_variance", ["the input's gradient", "wrong value"], '''
-            var = square - mean.square()
+            var = (square - mean.square()).detach()
'''),
    Wrong("detached", ["no gradient flows through mean and variance"], '''
-        total = grad.clone()  # mutate: same
-        all_reduce(total, ctx.group)
-        return total, None
+        return None, None
'''),
    Wrong("detached_without_backward", ["no gradient flows through mean and variance"], '''
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
+            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]).detach(), self.group)
'''),
    Wrong("eps_beside_the_root", ["the output", "wrong value"], '''
-        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
+        return (x - mean) / (var.sqrt() + self.eps) * self.weight + self.bias
'''),
    Wrong("equal_batches", ["the output with 5 + 2 rows", "wrong value"], '''
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
-            n = sums[-1].detach()
+            n = x.new_tensor(self.group.size * len(x))
+            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), n[None]]), self.group)
'''),
    Wrong("evaluates_by_the_batch", ["look at self.training"], '''
-        if self.training:
+        if True:
'''),
    Wrong("evaluates_by_the_batch_untracked", ["normalised by the batch"], '''
-        if self.training:
+        if True:
@@
             with torch.no_grad():
+                if not self.training:
+                    return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
'''),
    Wrong("float32_on_the_wire", ["float32's rounding"], '''
-        total = tensor.clone()
+        total = tensor.float()
@@
-        return total
+        return total.double()
'''),
    Wrong("gathers_all_rows", ["list of calls in forward"], '''
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
-            n = sums[-1].detach()
-            mean, square = (sums[:-1] / n).chunk(2)
-            var = square - mean.square()
+            sizes = x.new_zeros(self.group.size)
+            sizes[self.group.index] = len(x)
+            all_reduce(sizes, self.group)
+            n = sizes.sum()
+            begin = int(sizes[: self.group.index].sum())
+            whole = torch.cat([
+                x.new_zeros(begin, x.shape[1]), x,
+                x.new_zeros(int(n) - begin - len(x), x.shape[1]),
+            ])
+            whole = SumOverRanks.apply(whole, self.group)
+            mean, var = whole.mean(0), whole.var(0, correction=0)
'''),
    Wrong("identity_backward", ["only this rank's loss reaches the statistics"], '''
-        total = grad.clone()  # mutate: same
-        all_reduce(total, ctx.group)
-        return total, None
+        return grad, None
'''),
    Wrong("in_place_behind_autograd", ["only this rank's loss reaches the statistics"], '''
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
+            sums = torch.cat([x.sum(0), x.square().sum(0), count])
+            all_reduce(sums.detach(), self.group)
'''),
    Wrong("local", ["this rank's own rows"], '''
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
+            sums = torch.cat([x.sum(0), x.square().sum(0), count])
'''),
    Wrong("momentum_swapped", ["momentum is the weight of the new batch"], '''
-                self.running_mean.lerp_(mean, self.momentum)
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                self.running_mean.lerp_(mean, 1 - self.momentum)
+                self.running_var.lerp_(var * n / (n - 1), 1 - self.momentum)
'''),
    Wrong("never_tracks", ["running_mean after 1 batches", "wrong value"], '''
-                self.running_mean.lerp_(mean, self.momentum)
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                pass
'''),
    Wrong("running_in_the_graph", ["part of the graph"], '''
-                self.running_mean.lerp_(mean, self.momentum)
+                pass
+            self.running_mean = self.running_mean.detach().lerp(mean, self.momentum)
+            with torch.no_grad():
'''),
    Wrong("running_var_of_own_rows", ["running_var after 1 batches with 5 + 2 rows", "wrong value"], '''
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                self.running_var.lerp_(var * len(x) / max(len(x) - 1, 1), self.momentum)
'''),
    Wrong("sends_in_evaluation", ["the list of calls in evaluation"], '''
                 self.running_var.lerp_(var * n / (n - 1), self.momentum)
+        else:
+            all_reduce(x.sum(0), self.group)
'''),
    Wrong("skips_a_rank_without_rows", ["a rank without rows takes part"], '''
         if self.training:
+            if not len(x):
+                return x
'''),
    Wrong("tracks_in_evaluation", ["the running statistics after an evaluation", "self.training"], '''
-        if self.training:
+        if True:
@@
                 self.running_var.lerp_(var * n / (n - 1), self.momentum)
+        if not self.training:
+            mean, var = self.running_mean, self.running_var
'''),
    Wrong("two_calls_forward", ["list of calls in forward"], '''
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
+            both = torch.cat([x.sum(0), x.new_tensor([x.shape[0]])])
+            sums = SumOverRanks.apply(both, self.group)
@@
-            mean, square = (sums[:-1] / n).chunk(2)
-            var = square - mean.square()
+            mean = sums[:-1] / n
+            var = SumOverRanks.apply((x - mean).square().sum(0), self.group) / n
'''),
    Wrong("unbiased_everywhere", ["only for running_var", "the output"], '''
-            var = square - mean.square()
+            var = (square - mean.square()) * n / (n - 1)
@@
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
+                self.running_var.lerp_(var, self.momentum)
'''),
    Wrong("weight_gradient_summed", ["data parallelism does that"], '''
-        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
+        weight, bias = _Shared.apply(torch.stack([self.weight, self.bias]), self.group)
+        return (x - mean) / (var + self.eps).sqrt() * weight + bias
+
+
+class _Shared(torch.autograd.Function):
+    @staticmethod
+    def forward(ctx: Any, both: torch.Tensor, group: Group) -> torch.Tensor:
+        ctx.group = group
+        return both.clone()
+
+    @staticmethod
+    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
+        total = grad.clone()
+        all_reduce(total, ctx.group)
+        return total, None
'''),
    Wrong("torchs_own", ["what this exercise does not allow: torch.nn.SyncBatchNorm"], '''
-        mean, var = self.running_mean, self.running_var
-        if self.training:
-            count = x.new_tensor([x.shape[0]])
-            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
-            n = sums[-1].detach()
-            mean, square = (sums[:-1] / n).chunk(2)
-            var = square - mean.square()
-            with torch.no_grad():
-                self.running_mean.lerp_(mean, self.momentum)
-                self.running_var.lerp_(var * n / (n - 1), self.momentum)
-        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
+        return nn.SyncBatchNorm(x.shape[1], dtype=x.dtype)(x)
'''),
]

RIGHT = [
    Right("variant_comm_autograd", "the pairs of course_lib.comm.autograd, sums centred on the running mean", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm import copy_to_group, reduce_from_group


class SyncBatchNorm1d(nn.Module):
    def __init__(
        self, num_features: int, group: Group, eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.group, self.eps, self.momentum = group, eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(num_features, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            shift = self.running_mean.clone()  # the same on all ranks
            far = x - shift
            parts = torch.stack([far, far.square(), torch.ones_like(x)]).sum(1)
            parts = torch.cat([parts[:2].flatten(), parts[2, :1]])
            sums = copy_to_group(reduce_from_group(parts, self.group), self.group)
            n = sums[-1].detach()
            mean, square = (sums[:-1] / n).view(2, -1)
            var, mean = square - mean.square(), mean + shift
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
'''),
    Right("variant_own_backward", "one autograd function for all, with the formula of the paper", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, weight, bias, group, eps):
        sums = torch.cat([x.sum(0), (x * x).sum(0), torch.tensor([float(len(x))]).double()])
        all_reduce(sums, group)
        count = sums.numel() // 2
        n = sums[-1].clone()
        mean, var = sums[:count] / n, sums[count:-1] / n - (sums[:count] / n) ** 2
        scale = (var + eps).rsqrt()
        normal = (x - mean) * scale
        ctx.save_for_backward(normal, weight, scale, n)
        ctx.group = group
        ctx.mark_non_differentiable(mean, var, n)
        return normal * weight + bias, mean, var, n

    @staticmethod
    def backward(ctx: Any, grad, *_):
        normal, weight, scale, n = ctx.saved_tensors
        own = torch.stack([grad.sum(0), (grad * normal).sum(0)])
        total = own.clone()
        all_reduce(total, ctx.group)
        inner = grad - (total[0] + normal * total[1]) / n
        return inner * weight * scale, own[1], own[0], None, None


class SyncBatchNorm1d(nn.BatchNorm1d):
    def __init__(
        self, num_features: int, group: Group, eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__(num_features, eps, momentum, dtype=torch.float64)
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        y, mean, var, n = Normalise.apply(x, self.weight, self.bias, self.group, self.eps)
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (var * n / (n - 1) - self.running_var)
        return y
'''),
    Right("variant_packed_by_padding", "packed by padding, n as a number, the sum of squares corrected before the division", '''
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.comm import Group, all_reduce


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        total = tensor.clone()
        all_reduce(total, group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = grad.clone()
        all_reduce(total, ctx.group)
        return total, None


class SyncBatchNorm1d(nn.Module):
    def __init__(
        self, num_features: int, group: Group, eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.group, self.eps, self.momentum = group, eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(num_features, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            here = x.new_tensor(float(len(x)))
            packed = F.pad(torch.stack([x, x**2], 1).sum(0).flatten(), (0, 1)) + F.pad(
                here[None], (2 * x.shape[1], 0)
            )
            sums = SumOverRanks.apply(packed, self.group)
            n = float(sums[-1])
            mean = sums[: x.shape[1]] / n
            var = (sums[x.shape[1] : -1] - n * mean**2) / n
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
'''),
]
