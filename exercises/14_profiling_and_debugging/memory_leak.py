"""A training loop whose memory grows with every step: find the three leaks and close them.

Notebook 14. This trainer works: losses, statistics and weights are right. But each step leaves a
few tensors behind, and after some thousand steps the device is full; whoever looks only at the step
that failed finds nothing wrong with it. PyTorch frees a tensor when the last reference to it goes.
So whatever leaks is still referenced somewhere: in a list, in an attribute, in what a hook can see,
or through autograd's graph. A tensor that was computed with gradients holds, through its graph,
everything that its backward would need.

Repair `evaluate`, `watch` and `synchronize`; each has one leak. Change as much in them as you like,
and add attributes if you need any.

Rules
- The results stay: `scores`, `means`, the gradients and the weights, to the last digits.
- Between two calls nothing may be left that was not there before: after ten calls as many bytes of
  tensors are alive as after five. A Python number is not a tensor; a tensor of one element is.
- `means` is over *all* forwards since `watch`, not over the last ones.
- The all-reduces may stay asynchronous, one for each parameter; any way of `course_lib.comm` will
  do that gives the mean.

Your answer may use `comm` of `course_lib`.
"""

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
        score = self.loss(x, y)
        self.scores.append(score)
        return score.item()

    def watch(self, name: str) -> None:
        """From now on, keeps in `means[name]` the average of mean(|output|) over all forwards."""
        outputs: list[torch.Tensor] = []
        def look(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            outputs.append(output)
            sizes = [one.abs().mean() for one in outputs]
            self.means[name] = torch.stack(sizes).mean().item()
        self.model.get_submodule(name).register_forward_hook(look)

    def synchronize(self) -> None:
        """Replaces each parameter's gradient by its mean over the ranks, all on the way at once."""
        for parameter in self.model.parameters():
            mean = parameter.grad.clone()
            work = all_reduce(mean, self.group, "avg", async_op=True)
            self.under_way.append((work, parameter, mean))
        for work, parameter, mean in self.under_way:
            work.wait()
            parameter.grad = mean
