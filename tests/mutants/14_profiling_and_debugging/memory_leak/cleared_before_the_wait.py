"""mutant: the gradients, own gradient"""

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
        total, count = 0.0, 0

        def look(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            nonlocal total, count
            total, count = total + float(output.detach().abs().mean()), count + 1
            self.means[name] = total / count

        self.model.get_submodule(name).register_forward_hook(look)

    def synchronize(self) -> None:
        """Replaces each parameter's gradient by its mean over the ranks, all on the way at once."""
        for parameter in self.model.parameters():
            mean = parameter.grad.clone()
            work = all_reduce(mean, self.group, "avg", async_op=True)
            self.under_way.append((work, parameter, mean))
        self.under_way.clear()
        for work, parameter, mean in self.under_way:
            work.wait()
            parameter.grad = mean
