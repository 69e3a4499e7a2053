"""muon: choose the parameters for Muon, and scale its updates.

Notebook 19, section 4. Muon is for matrices inside the network. Each row of an embedding or of the
output layer belongs to one token, and a norm's weight is a vector, so these go to AdamW.

Rules

- `muon_parameters` returns two lists, (matrices, rest), in the order of `model.parameters()`. They
  contain only parameters that require a gradient, each once. `rest` holds all parameters that do
  not have two dimensions, the weight of every `nn.Embedding` (or subclass; also if other modules
  share it), and all parameters of the modules in `ends`, at any depth.
- `step` does not change a parameter without a gradient (`grad` is None), and changes no gradient.
  A gradient of zeros is a gradient. For every other parameter of shape (rows, columns) it computes

      M ← μ·M + G,   D = G + μ·M,   W ← (1 - lr·decay)·W - lr·√max(1, rows/columns)·O(D)

  where M begins as zeros, and O is `newton_schulz` with the given steps. The weights are changed in
  place. For each matrix, exactly one tensor is kept from step to step: M, which has the parameter's
  dtype.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from course_lib.parallel import newton_schulz


def muon_parameters(
    model: nn.Module, ends: Sequence[nn.Module]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Divides a model's parameters between Muon and AdamW.

    Args:
        model: any module.
        ends: modules whose parameters Muon must not get, such as the output layer.

    Returns:
        Muon's parameters, and all other parameters that are trained.
    """
    # BEGIN SOLUTION
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    outside = {id(p) for module in (*ends, *embeddings) for p in module.parameters()}
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            inside = parameter.dim() == 2 and id(parameter) not in outside
            (matrices if inside else rest).append(parameter)
    return matrices, rest
    # END SOLUTION


class Muon:
    """Updates matrices by their momentum, made orthogonal.

    Args:
        params: matrices, such as the first list of `muon_parameters`.
        lr: the learning rate.
        momentum: μ.
        weight_decay: decay in the formula above.
        steps: of Newton-Schulz.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        # BEGIN SOLUTION
        self.params = list(params)
        self.lr, self.momentum, self.weight_decay, self.steps = lr, momentum, weight_decay, steps
        self.moments = [torch.zeros_like(p) for p in self.params]
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Updates every matrix that has a gradient."""
        # BEGIN SOLUTION
        for parameter, moment in zip(self.params, self.moments, strict=True):
            if parameter.grad is None:
                continue
            moment.mul_(self.momentum).add_(parameter.grad)
            direction = parameter.grad + self.momentum * moment
            rows, columns = parameter.shape
            scale = max(1.0, rows / columns) ** 0.5
            parameter.mul_(1 - self.lr * self.weight_decay)
            parameter.add_(newton_schulz(direction, self.steps), alpha=-self.lr * scale)
        # END SOLUTION
