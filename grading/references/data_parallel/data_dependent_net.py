"""A net whose way depends on the data: gradients come in another order on another rank, or not.

A route such as `acb` says which layers a rank goes through, in which order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

LAYERS = "abcd"
# Layer by layer from the last, cut so that a bucket holds parts of two layers. All that another
# order of gradients can mix up have the same size: a mix-up then shows in the values.
BUCKETS = (
    ("d_bias",), ("d", "c_bias"), ("c", "b_bias"), ("b", "a_bias"), ("a", "shift"), ("gain",),
    ("table",),
)  # fmt: skip
AFTER = ("none", "keep", "zeros")  # how gradients are cleared after each step
OPTIMIZERS = ("SGD", "AdamW")
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs [B, width + 2], targets [B, width + 5]
Values = dict[str, torch.Tensor]


class Net(nn.Module):
    """Four layers, a tied table, a frozen vector, and a gain of a narrower dtype beside them.

    Args:
        seed: of all its numbers.
        width: of the layers.
        dtype: of the gain.
    """

    def __init__(self, seed: int, width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.float64) / width**0.5

        self.table = nn.Parameter(random(width + 2, width))
        self.shift, self.gain = nn.Parameter(random(width)), nn.Parameter((1 + random(3)).to(dtype))
        self.frozen = nn.Parameter(1 + random(width), requires_grad=False)
        for layer in LAYERS:
            setattr(self, layer, nn.Parameter(random(width, width)))
            setattr(self, f"{layer}_bias", nn.Parameter(random(width)))

    def forward(self, x: torch.Tensor, route: str) -> torch.Tensor:
        """Goes through the layers of the route; the table is used first and last."""
        hidden = (x @ self.table + self.shift) * self.frozen
        for layer in route:
            weight, bias = self.get_parameter(layer), self.get_parameter(f"{layer}_bias")
            hidden = torch.tanh(hidden @ weight + bias)
        beside = x[:, :3] * self.gain.double()  # its rounding must not reach the others
        return torch.cat([hidden @ self.table.t(), beside], 1)


def loss(net: nn.Module, batch: Batch, route: str) -> torch.Tensor:
    """The mean over a batch."""
    return (net(batch[0], route) - batch[1]).square().mean()


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """What has a gradient, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def optimizer(name: str, net: nn.Module) -> torch.optim.Optimizer:
    """One of OPTIMIZERS."""
    if name == "SGD":
        return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def clear(chosen: torch.optim.Optimizer, step: int) -> None:
    """Clears gradients after a step, or does not, as AFTER says."""
    how = AFTER[step % len(AFTER)]
    if how != "keep":
        chosen.zero_grad(set_to_none=how == "none")


# --- in one process ------------------------------------------------------------------------------
def one_process(
    net: Net, name: str, batches: Sequence[Sequence[Batch]], routes: Sequence[Sequence[str]]
) -> tuple[list[dict[str, Any]], Values]:
    """Trains on all ranks' batches at once.

    Args:
        net: is trained.
        name: of the optimizer.
        batches: for each rank, its batch in each step.
        routes: for each rank, its route in each step.

    Returns:
        For each step, the gradients by name, `right` and known wrong ones; and the weights at the
        end. A parameter that no rank used is not among the gradients.
    """
    chosen, steps = optimizer(name, net), list[dict[str, Any]]()
    for number in range(len(routes[0])):
        parts = [
            _own(net, mine[number], route[number])
            for mine, route in zip(batches, routes, strict=True)
        ]
        steps.append(_known(net, parts, steps[-1]["right"] if steps else {}))
        for key, gradient in steps[-1]["right"].items():
            net.get_parameter(key).grad = gradient.clone()
        chosen.step()
        clear(chosen, number)
    return steps, {key: p.detach() for key, p in net.named_parameters()}


def _own(net: Net, batch: Batch, route: str) -> dict[str, torch.Tensor | None]:
    """One rank's gradients; None for what it does not use."""
    names = trained(net)
    grads = torch.autograd.grad(loss(net, batch, route), list(names.values()), allow_unused=True)
    return dict(zip(names, grads, strict=True))


def _known(net: Net, parts: list[dict[str, Any]], last: Values) -> dict[str, Any]:
    """Right gradients, and what known mistakes make of them, on top of what was kept."""
    found: dict[str, Any] = {"right": {}, "sum": {}, "stale": {}, "own": [{} for _ in parts]}
    for key, parameter in trained(net).items():
        if all(part[key] is None for part in parts):
            continue
        zero = torch.zeros_like(parameter)
        kept = zero if parameter.grad is None else parameter.grad
        filled = [kept + (zero if part[key] is None else part[key]) for part in parts]
        old = [last.get(key, zero) if part[key] is None else part[key] for part in parts]
        found["right"][key] = torch.stack(filled).mean(0)
        found["sum"][key] = torch.stack(filled).sum(0)
        found["stale"][key] = kept + torch.stack(old).mean(0)
        for mine, value in zip(found["own"], filled, strict=True):
            mine[key] = value
    return found
