"""Muon: momentum, made orthogonal, is the update of a matrix.

Notebook: 19 Optimizers that see matrices (Muon).
Source: Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024); Liu et al., "Muon
is Scalable for LLM Training" (2025), for the weight decay and the scale by rms.
Costs one momentum for each weight, half of Adam's state, and the operations of `newton_schulz`.
The production version (torch.optim.Muon) computes the iteration in bfloat16.

For matrices inside of a network. Embeddings, the output layer, norms and biases go to AdamW: a row
of an embedding is a thing of its own, and a vector has one singular value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel.matrix.newton_schulz import STEPS, newton_schulz

SCALES: dict[str, Callable[[int, int], float]] = {
    # Both keep the size of an update the same for every shape: its largest singular value per
    # width, or the root mean square of its elements, at what AdamW's is in practice.
    "spectral": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "rms": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(torch.optim.Optimizer):
    """w ← (1 - rate·decay)·w - rate·scale·orthogonal(momentum).

    Args:
        params: matrices, or parameter groups of them.
        lr: the rate.
        momentum: how much of the old direction stays.
        nesterov: look one step ahead: gradient + momentum·(new direction).
        weight_decay: decoupled, as AdamW's.
        steps: of Newton-Schulz.
        scale: "spectral", √max(1, rows/columns), the original; or "rms", 0.2·√max(rows, columns),
            which lets AdamW's rate and decay be kept.

    Raises:
        CommError: a parameter is no matrix, or the scale has another name.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        steps: int = STEPS,
        scale: str = "spectral",
    ) -> None:
        if scale not in SCALES:
            raise CommError(
                f"{type(self).__name__} with scale {scale!r}",
                f"the scales {sorted(SCALES)}",
                "they say how large an update is for a shape",
            )
        options = {
            "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
            "steps": steps, "scale": scale,
        }  # fmt: skip
        super().__init__(params, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer, if all of them are matrices."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if len(shape := self.shape_of(parameter)) != 2:
                self.param_groups.pop()
                raise CommError(
                    f"{type(self).__name__} of {len(param_group['params'])} parameters",
                    f"one of shape {tuple(shape)}",
                    "it updates whole matrices: AdamW takes other shapes, OwnerMuon pieces",
                )

    def shape_of(self, parameter: nn.Parameter) -> Sequence[int]:
        """(rows, columns) of the whole matrix."""
        return parameter.shape

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            directions = [self._direction(p, group) for p in parameters]
            updates = self.orthogonal(parameters, directions, group["steps"])
            for parameter, update in zip(parameters, updates, strict=True):
                scale = SCALES[group["scale"]](*self.shape_of(parameter))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)
        return loss

    def orthogonal(
        self, parameters: Sequence[nn.Parameter], directions: Sequence[torch.Tensor], steps: int
    ) -> list[torch.Tensor]:
        """The directions made orthogonal, each in its own shape."""
        return [newton_schulz(direction, steps) for direction in directions]

    def _direction(self, parameter: nn.Parameter, group: dict[str, Any]) -> torch.Tensor:
        """Momentum is element by element: a piece of it is the momentum of the piece."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum: torch.Tensor = state["momentum"]
        momentum.mul_(group["momentum"]).add_(gradient)
        if not group["nesterov"]:
            return momentum
        return gradient + group["momentum"] * momentum
