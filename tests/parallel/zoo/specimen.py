"""What a row of the zoo is: a model of an awkward shape, how it is used, and what is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

WIDTH = 6
Loss = Callable[[Any, torch.Tensor], torch.Tensor]


def rows(step: int, part: int) -> torch.Tensor:
    """The micro-batch of a rank in a step: the same wherever it is asked for, [4, WIDTH]."""
    generator = torch.Generator().manual_seed(1000 * step + part)
    return torch.randn(4, WIDTH, generator=generator, dtype=torch.float64)


def mean_square(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The loss of a model that gives one tensor."""
    square: torch.Tensor = model(x).abs().pow(2).mean()
    return square


def bare(model: Any) -> Any:
    """The model itself, out of a wrapper that has it as `module`."""
    return getattr(model, "module", model)


def adam(params: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """An `eps` this large keeps Adam from making much of the last bits of a gradient near zero."""
    return torch.optim.Adam, {"lr": 0.02, "eps": 1e-2}


def sgd(params: Any) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Plain, as sparse gradients need."""
    return torch.optim.SGD, {"lr": 0.05}


@dataclass(frozen=True)
class Specimen:
    """One model of the zoo.

    Attributes:
        name: of the row.
        what: what is awkward about it, for the table in the docs.
        make: builds it, from seeded random numbers.
        units: names of the submodules that FSDP is given as units.
        loss: from the model, wrapped or not, and a micro-batch.
        data: the micro-batch of a step and a part.
        optimizer: class and options.
        unused: pass `find_unused_parameters`.
        micro: backwards before a step; all but the last are inside `no_sync`, where there is one.
        refused: a wrapper's name, and words of its refusal; those not named must be equal.
        tolerance: of FSDP in bf16, where casts fall at other places than in the reference.
        close: of all others; more where a part of the model computes in float32.
        unfit: why the model does not compute in bf16, not in one process either.
        slow: only in the long run.
    """

    name: str
    what: str
    make: Callable[[], nn.Module]
    units: tuple[str, ...] = ()
    loss: Loss = mean_square
    data: Callable[[int, int], torch.Tensor] = rows
    optimizer: Callable[[Any], tuple[type[torch.optim.Optimizer], dict[str, Any]]] = adam
    unused: bool = False
    micro: int = 1
    refused: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-9
    close: float = 1e-9
    unfit: str = ""
    slow: bool = False

    def build(self, seed: int = 0) -> nn.Module:
        """The model in float64, the same for each seed, wherever it is built."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            torch.manual_seed(seed)
            return self.make()
        finally:
            torch.set_default_dtype(before)

    def expected(self, wrapper: str) -> tuple[str, str]:
        """How a case is to end, and words that it must say."""
        if self.unfit and wrapper == "FSDP bf16":
            return "unfit", ""
        words = self.refused.get(wrapper)
        return ("refused", words) if words else ("equal", "")

    def submodules(self, model: nn.Module) -> list[nn.Module]:
        """The units."""
        return [model.get_submodule(name) for name in self.units]
