"""1-bit Adam: Adam's second moment is frozen after a warm-up; then the first one travels as signs.

Notebook: 18 Less communication (one_bit_adam).
Paper: Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's
Convergence Speed" (2021), algorithm 1.
Costs a step of warm-up 2(N-1)/N·S bytes a rank, then (N-1)·(n/8 + s) for each tensor of n elements
of s bytes; memory for what is owed, beside Adam's two moments.
DeepSpeed's OnebitAdam (removed in 2026) had an owner for each part, which compressed the mean
again: 2(N-1)/N·n/8 bytes, and a second memory.

Adam divides by the root of its second moment, so an error in a gradient would not be added up but
divided, and feedback could not take it back. With that moment frozen, the step is linear in the
first one, and the sum telescopes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.compress.compressors import Sign
from course_lib.parallel.compress.feedback import ErrorFeedback
from course_lib.parallel.flat_mean import FlatMean


class OneBitAdam(torch.optim.Optimizer):
    """Adam over ranks that have gradients of their own: do not wrap the model in DDP.

    Every parameter that is trained must have a gradient in every step, and begin with the same
    values on all ranks. An element that had no gradient but zero in the warm-up stays as it is: its
    frozen second moment says nothing of its size, and a sign is never zero.

    Args:
        params: parameters or parameter groups, the same on every rank.
        group: the data-parallel ranks.
        warmup: steps that are Adam's; the paper's are 15 to 25 % of all.
        lr: the rate.
        betas: as Adam's.
        eps: as Adam's.

    Raises:
        CommError: no step of warm-up, after which the second moment would be zero; parameters that
            are added or unfrozen after the first step, which would have none; in a step, a
            parameter without a gradient, or a complex one.
    """

    def __init__(
        self,
        params: Iterable[Any],
        group: Group,
        warmup: int,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if warmup < 1:
            raise CommError(
                f"OneBitAdam over {group} with {warmup} steps of warm-up",
                "a second moment of zero",
                "it is frozen after the warm-up, and every update is divided by its root",
            )
        self.group, self.warmup, self.steps = group, warmup, 0
        self.feedback = ErrorFeedback(Sign())
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; before the first step."""
        if self.steps:
            raise CommError(
                f"another parameter group for OneBitAdam over {self.group}",
                f"{self.steps} steps were made, and {self.warmup} are of warm-up",
                "all moments have one warm-up: give it all parameters at first",
            )
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; collective."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        rows = [(p, o) for o in self.param_groups for p in o["params"] if p.requires_grad]
        gradients = [self._gradient(p) for p, _ in rows]
        self.steps += 1
        warm = self.steps <= self.warmup
        if warm:
            gradients = FlatMean(gradients, self.group).wait()
        firsts = [
            torch.lerp(gradient, self._state(p)["first"], options["betas"][0])
            for (p, options), gradient in zip(rows, gradients, strict=True)
        ]
        if not warm:
            firsts = self.feedback.mean(firsts, self.group)
        for (p, options), gradient, first in zip(rows, gradients, firsts, strict=True):
            self._update(p, options, first, gradient if warm else None)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Moments, how many steps were made, and what this rank still owes."""
        return {**super().state_dict(), "steps": self.steps, "errors": self.feedback.errors}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what the same rank has saved."""
        super().load_state_dict(state_dict)
        self.steps = state_dict["steps"]
        self.feedback.errors = [error.clone() for error in state_dict["errors"]]

    def _update(
        self,
        parameter: nn.Parameter,
        options: dict[str, Any],
        first: torch.Tensor,
        gradient: torch.Tensor | None,
    ) -> None:
        """Adam's; without a gradient the second moment stays as it is."""
        state, (beta1, beta2) = self._state(parameter), options["betas"]
        state["first"] = first
        if gradient is not None:
            state["second"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        seen = min(self.steps, self.warmup)
        root = (state["second"] / (1 - beta2**seen)).sqrt_().add_(options["eps"])
        root.masked_fill_(state["second"] == 0, torch.inf)
        rate = options["lr"] / (1 - beta1**self.steps)
        parameter.addcdiv_(first, root, value=-rate)

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            raise CommError(
                f"a step of OneBitAdam over {self.group}",
                f"no gradient for a parameter of shape {tuple(parameter.shape)}"
                f" on rank {self.group.rank}",
                "all ranks send the same moments: freeze what is not used",
            )
        if self.steps and not self.state[parameter]:
            raise CommError(
                f"a step of OneBitAdam over {self.group}",
                f"a parameter of shape {tuple(parameter.shape)} that was frozen in the first one",
                "all moments have one warm-up: make the optimizer again",
            )
        if parameter.is_complex():
            raise CommError(
                f"a step of OneBitAdam over {self.group}",
                f"a complex parameter of shape {tuple(parameter.shape)}",
                "a complex number has no sign: keep its two parts as real parameters",
            )
        return parameter.grad

    def _state(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self.state[parameter]
        if not state:
            state["first"] = torch.zeros_like(parameter)
            state["second"] = torch.zeros_like(parameter)
        return state
