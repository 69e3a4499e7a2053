"""What one process computes, of which every wrapper is to be the equal.

A step's gradient is the mean over the parts that ranks would have. Each part begins with the
buffers of before, and those of part 0 stay: so does a rank of index 0, whatever the wrapper.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from tests.parallel.zoo.specimen import Specimen

State = dict[str, torch.Tensor]
Gradients = list[torch.Tensor | None]


class Alone:
    """One process that trains a specimen on the parts of `count` ranks.

    Args:
        specimen: what to train.
        count: parts of a step.
        dtype: what to compute in, from weights that stay as they are; None for their own.
    """

    def __init__(self, specimen: Specimen, count: int, dtype: torch.dtype | None = None) -> None:
        self.specimen, self.count, self.dtype = specimen, count, dtype
        self.model = specimen.build()
        trained = [p for p in self.model.parameters() if p.requires_grad]
        make, options = specimen.optimizer(trained)
        self.optimizer = make(trained, **options)

    def step(self, number: int) -> list[float]:
        """Makes a step, and returns the losses of the parts, of the last micro-batch."""
        before, kept = self._buffers(), self._buffers()
        losses, gradients = [], list[Gradients]()
        for part in range(self.count):
            self._set_buffers(before)
            loss, found = self._part(number, part)
            losses.append(loss)
            gradients.append(found)
            kept = self._buffers() if part == 0 else kept
        self._set_buffers(kept)
        for position, parameter in enumerate(self.model.parameters()):
            parts = [g[position] for g in gradients if g[position] is not None]
            parameter.grad = sum(parts[1:], start=parts[0]) / self.count if parts else None
        self.optimizer.step()
        return losses

    def _part(self, number: int, part: int) -> tuple[float, Gradients]:
        """The backwards of one part: its last loss, and the gradient of each parameter."""
        model = cast_copy(self.specimen, self.model, self.dtype) if self.dtype else self.model
        model.zero_grad()
        micro = self.specimen.micro
        for batch in range(number * micro, (number + 1) * micro):
            loss = self.specimen.loss(model, self.specimen.data(batch, part))
            (loss / micro).backward()
        if model is not self.model:
            self._set_buffers([b.detach() for b in model.buffers()])
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        found = [None if p.grad is None else p.grad.to(own.dtype) for own, p in pairs]
        model.zero_grad()
        return float(loss.detach()), found

    def state(self) -> State:
        """Weights and buffers now."""
        state = self.model.state_dict()
        return {n: t.detach().clone() for n, t in state.items() if torch.is_tensor(t)}

    def _buffers(self) -> list[torch.Tensor]:
        return [b.clone() for b in self.model.buffers()]

    def _set_buffers(self, values: list[torch.Tensor]) -> None:
        for own, value in zip(self.model.buffers(), values, strict=True):
            own.copy_(value)


def cast_copy(specimen: Specimen, model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A model whose units compute as those of an FSDP whose `Precision` is `dtype`."""
    narrow = specimen.build()  # no deepcopy, which would leave hooks on parameters behind
    for own, other in zip(narrow.parameters(), model.parameters(), strict=True):
        own.data = other.data.to(dtype) if own.is_floating_point() else other.data.clone()
    for own, other in zip(narrow.buffers(), model.buffers(), strict=True):
        own.copy_(other)

    def cast(_: nn.Module, args: Any, kwargs: Any) -> Any:
        def one(leaf: Any) -> Any:
            floating = torch.is_tensor(leaf) and leaf.is_floating_point()
            return leaf.to(dtype) if floating else leaf

        return tree_map(one, (args, kwargs))

    for module in [narrow, *specimen.submodules(narrow)]:
        module.register_forward_pre_hook(cast, with_kwargs=True)
    return narrow


def difference(found: State, expected: State, tolerance: float) -> str:
    """The first tensor that is not as expected, in words; "" if all are."""
    if found.keys() != expected.keys():
        return f"other names: {sorted(found.keys() ^ expected.keys())[:3]}"
    for name, value in expected.items():
        other = found[name]
        if other.dtype != value.dtype or other.shape != value.shape:
            return (
                f"{name} is {other.dtype}{list(other.shape)}, not {value.dtype}{list(value.shape)}"
            )
        allowed = max(tolerance, 1e-4 if value.dtype == torch.float32 else 0.0)
        with suppress(RuntimeError):  # integers and bools, which have no distance
            gap = float((other - value).abs().max()) if value.numel() else 0.0
            if not gap <= allowed:
                return f"{name} is off by {gap:.1e}"
            continue
        if not torch.equal(other, value):
            return f"{name} is another"
    return ""
