"""AdamW by hand: two moments for each parameter, and a decay that is not part of the gradient.

Notebook: 02 Data parallel; 04 ZeRO, where its state is what is cut in pieces.
Paper: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2.
Costs 8 bytes per parameter for its two fp32 moments, twice the fp32 gradient; no communication.
The production version is fused: one kernel for all parameters (`torch.optim.AdamW(fused=True)`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from course_lib.trace import Refusal


class AdamW(torch.optim.Optimizer):
    """The same updates as `torch.optim.AdamW`, written out.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        betas: decay of the first and of the second moment.
        eps: added to the root of the second moment.
        weight_decay: share of the parameter that a step of lr 1 takes away.

    Raises:
        Refusal: one of these below 0, or a beta from 1 on.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        if min(lr, eps, weight_decay, *betas) < 0 or max(betas) >= 1:
            raise Refusal(
                "AdamW",
                f"lr {lr}, betas {betas}, eps {eps}, weight_decay {weight_decay}",
                "none is below 0, and a moment with a beta of 1 would never move",
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient; calls `closure` first, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        first, second, gradient = state["exp_avg"], state["exp_avg_sq"], parameter.grad
        if parameter.is_complex():  # two numbers, each with moments of its own
            parameter, first, second, gradient = map(
                torch.view_as_real, (parameter, first, second, gradient)
            )
        state["step"] += 1
        count = state["step"].item()
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Both moments begin at zero; dividing by these makes up for it in the first steps.
        root = (second / (1 - beta2**count)).sqrt_().add_(group["eps"])
        parameter.addcdiv_(first, root, value=-group["lr"] / (1 - beta1**count))
