"""muon: which parameters it takes, and how large each update is.

Notebook 19, section 4. Muon is for matrices inside the network. A row of an embedding or of the
output layer belongs to one token, and a norm's weight is a vector: these go to AdamW.

Rules

- `muon_parameters` returns two lists, (matrices, rest), in the order of `model.parameters()`. Only
  parameters that require a gradient are in them, each once. `rest` has all that are not of two
  dimensions, the weight of every `nn.Embedding`, and the weights of the modules in `ends`.
- `step` leaves a parameter without a gradient as it is, and changes no gradient. For all others

      M ← μ·M + G,   D = G + μ·M,   W ← (1 - lr·decay)·W - lr·√max(1, rows/columns)·O(D)

  where M begins as zeros, and O is `newton_schulz` with the given steps. Weights stay the same
  tensors. Of each matrix exactly one tensor is kept from step to step, M.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from course_lib.parallel import newton_schulz


def muon_parameters(
    model: nn.Module, ends: Sequence[nn.Module]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Divides a model's parameters.

    Args:
        model: any module.
        ends: modules whose weights are not Muon's, such as the output layer.

    Returns:
        Muon's parameters, and all others that are trained.
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
    """Momentum, made orthogonal, is the update of a matrix.

    Args:
        params: matrices.
        lr: the learning rate.
        momentum: μ.
        weight_decay: decay.
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
        """One update of every matrix that has a gradient."""
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
