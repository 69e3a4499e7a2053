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

Your answer may use `parallel.newton_schulz` of `course_lib`; of torch everything but
`torch.optim.Muon`.
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
    raise NotImplementedError("muon: write your answer here")


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
        raise NotImplementedError("muon: write your answer here")

    @torch.no_grad()
    def step(self) -> None:
        """One update of every matrix that has a gradient."""
        raise NotImplementedError("muon: write your answer here")
