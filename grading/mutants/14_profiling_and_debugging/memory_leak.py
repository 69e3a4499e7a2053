"""Wrong and right answers to `memory_leak`: see `course dev show memory_leak`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("cleared_before_the_wait", ["the gradients", "own gradient"], '''
             self.under_way.append((work, parameter, mean))
+        self.under_way.clear()
@@
-        self.under_way.clear()  # only now: until its wait, a buffer must live
'''),
    Wrong("collects_garbage", ["the buffers of earlier calls are still in a list"], '''
 from course_lib.comm import Group, all_reduce
+import gc
@@
-        self.under_way.clear()  # only now: until its wait, a buffer must live
+        gc.collect()
'''),
    Wrong("clears_gradients", ["the gradients that were there before evaluate"], '''
         self.scores.append(score)
+        self.model.zero_grad()
'''),
    Wrong("cleared_at_the_next_call", ["until the next call the last one's tensors live"], '''
+        self.under_way.clear()
         for parameter in self.model.parameters():
             mean = parameter.grad.clone()
@@
-        self.under_way.clear()  # only now: until its wait, a buffer must live
'''),
    Wrong("last_output_stays", ["until the next call the last one's tensors live"], '''
             self.means[name] = total / count
+            layer.last = output
'''),
    Wrong("left_to_the_collector", ["bytes gained in 5 further calls of synchronize"], '''
-        self.under_way.clear()  # only now: until its wait, a buffer must live
+        ring = [self.under_way]
+        ring.append(ring)
+        self.under_way = []
'''),
    Wrong("weighed_by_rows", ["every forward counts once"], '''
-            total, count = total + float(output.detach().abs().mean()), count + 1
+            total += float(output.detach().abs().sum())
+            count += output.numel()
'''),
    Wrong("evaluate_left", ["bytes gained in 5 further evaluations", "no backward ever runs"], '''
-        with torch.no_grad():
-            score = float(self.loss(x, y))  # a number: the tensor and its graph may go
+        score = self.loss(x, y)
@@
-        return score
+        return score.item()
'''),
    Wrong("last_output_only", ["only the last forward counts"], '''
-        total, count = 0.0, 0
+        outputs = []
@@
-            nonlocal total, count
-            total, count = total + float(output.detach().abs().mean()), count + 1
-            self.means[name] = total / count
+            outputs[:] = [output.detach()]
+            sizes = torch.stack([output.abs().mean() for output in outputs])
+            self.means[name] = sizes.mean().item()
'''),
    Wrong("last_score_only", ["only the last score is there"], '''
-        self.scores.append(score)
+        self.scores = [score]
'''),
    Wrong("outputs_detached", ["every output is kept; a detached one is as large"], '''
-        total, count = 0.0, 0
+        outputs = []
@@
-            nonlocal total, count
-            total, count = total + float(output.detach().abs().mean()), count + 1
-            self.means[name] = total / count
+            outputs.append(output.detach())
+            sizes = torch.stack([output.abs().mean() for output in outputs])
+            self.means[name] = sizes.mean().item()
'''),
    Wrong("score_detached", ["a tensor of one element is still a tensor"], '''
-        with torch.no_grad():
-            score = float(self.loss(x, y))  # a number: the tensor and its graph may go
-        self.scores.append(score)
-        return score
+        score = self.loss(x, y)
+        self.scores.append(score.detach())
+        return score.item()
'''),
    Wrong("score_without_graph", ["a tensor of one element is still a tensor"], '''
-            score = float(self.loss(x, y))  # a number: the tensor and its graph may go
-        self.scores.append(score)
-        return score
+            score = self.loss(x, y)
+            self.scores.append(score)
+            return score.item()
'''),
    Wrong("sizes_as_tensors", ["a tensor of one element is still a tensor"], '''
-        total, count = 0.0, 0
+        outputs = []
@@
-            nonlocal total, count
-            total, count = total + float(output.detach().abs().mean()), count + 1
-            self.means[name] = total / count
+            outputs.append(output.detach().abs().mean())
+            sizes = torch.stack(outputs)
+            self.means[name] = sizes.mean().item()
'''),
    Wrong("sum_for_mean", ["the sum: the mean is meant"], '''
-            work = all_reduce(mean, self.group, "avg", async_op=True)
+            work = all_reduce(mean, self.group, async_op=True)
'''),
    Wrong("sum_with_graph", ["bytes gained in 5 further forwards and backwards"], '''
-            total, count = total + float(output.detach().abs().mean()), count + 1
-            self.means[name] = total / count
+            total, count = total + output.abs().mean(), count + 1
+            self.means[name] = (total / count).item()
'''),
    Wrong("synchronize_left", ["the buffers of earlier calls are still in a list"], '''
-        self.under_way.clear()  # only now: until its wait, a buffer must live
'''),
    Wrong("watch_left", ["bytes gained in 5 further forwards and backwards", "every output is kept"], '''
-        total, count = 0.0, 0
+        outputs = []
@@
-            nonlocal total, count
-            total, count = total + float(output.detach().abs().mean()), count + 1
-            self.means[name] = total / count
+            outputs.append(output)
+            sizes = torch.stack([output.abs().mean() for output in outputs])
+            self.means[name] = sizes.mean().item()
'''),
    Wrong("works_dropped_buffers_kept", ["the buffers of earlier calls are still in a list"], '''
-        self.under_way.clear()  # only now: until its wait, a buffer must live
+        self.under_way = [(work, parameter, mean)  for work, parameter, mean in self.under_way if work.is_completed()]
'''),
]

RIGHT = [
    Right("variant_a_local_list", "the list lives as long as the call; one number for each forward", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class Trainer:
    """SGD on the mean of the ranks' gradients, with some statistics.

    Args:
        model: the same on every rank.
        rate: of learning.
        group: the ranks.

    Attributes:
        scores: the loss that each `evaluate` has found; `float()` of an entry is the number.
        means: for each watched layer the mean absolute output, averaged over all its forwards.
    """

    def __init__(self, model: nn.Module, rate: float, group: Group) -> None:
        self.model, self.rate, self.group = model, rate, group
        self.scores: list[Any] = []
        self.means: dict[str, float] = {}
        self.under_way: list[Any] = []

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean squared error, a scalar."""
        return (self.model(x) - y).square().mean()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step of training."""
        self.model.zero_grad()
        self.loss(x, y).backward()
        self.synchronize()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= self.rate * parameter.grad

    def evaluate(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """The loss of a batch, without training on it; appended to `scores`."""
        with torch.no_grad():
            score = float(self.loss(x, y))  # a number: the tensor and its graph may go
        self.scores.append(score)
        return score

    def watch(self, name: str) -> None:
        """From now on, keeps in `means[name]` the average of mean(|output|) over all forwards."""
        sizes = []

        def look(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            sizes.append(output.abs().mean().item())
            self.means[name] = sum(sizes) / len(sizes)

        self.model.get_submodule(name).register_forward_hook(look)

    def synchronize(self) -> None:
        """Replaces each parameter's gradient by its mean over the ranks, all on the way at once."""
        under_way = []
        for parameter in self.model.parameters():
            mean = parameter.grad.clone()
            work = all_reduce(mean, self.group, "avg", async_op=True)
            under_way.append((work, parameter, mean))
        for work, parameter, mean in under_way:
            work.wait()
            parameter.grad = mean
'''),
    Right("variant_in_place", "gradients reduced in place, one after the other; statistics as tensors that are overwritten", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class Trainer:
    """SGD on the mean of the ranks' gradients, with some statistics.

    Args:
        model: the same on every rank.
        rate: of learning.
        group: the ranks.

    Attributes:
        scores: the loss that each `evaluate` has found; `float()` of an entry is the number.
        means: for each watched layer the mean absolute output, averaged over all its forwards.
    """

    def __init__(self, model: nn.Module, rate: float, group: Group) -> None:
        self.model, self.rate, self.group = model, rate, group
        self.scores: list[Any] = []
        self.means: dict[str, float] = {}
        self.under_way: list[Any] = []

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean squared error, a scalar."""
        return (self.model(x) - y).square().mean()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One step of training."""
        self.model.zero_grad()
        self.loss(x, y).backward()
        self.synchronize()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= self.rate * parameter.grad

    def evaluate(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """The loss of a batch, without training on it; appended to `scores`."""
        score = self.loss(x, y).item()
        self.scores.append(score)
        return score

    def watch(self, name: str) -> None:
        """From now on, keeps in `means[name]` the average of mean(|output|) over all forwards."""
        total, count = torch.zeros((), dtype=torch.float64), 0

        @torch.no_grad()
        def look(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            nonlocal count
            count += 1
            total.add_(output.abs().mean())
            self.means[name] = total.item() / count

        self.model.get_submodule(name).register_forward_hook(look)

    def synchronize(self) -> None:
        """Replaces each parameter's gradient by its mean over the ranks, all on the way at once."""
        for parameter in self.model.parameters():
            all_reduce(parameter.grad, self.group)
            parameter.grad /= self.group.size
'''),
]
