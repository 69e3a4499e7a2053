"""mutant: the update is made on the device"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        self.parameters = list(parameters)
        self.inner = torch.optim.AdamW(self.parameters, **options)
        self.param_groups = self.inner.param_groups

    def step(self) -> None:
        self.inner.step()

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None
