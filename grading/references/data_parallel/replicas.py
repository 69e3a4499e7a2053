"""A small model with the traps of data parallelism, and what one process makes of the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs [B, width], targets [B]
Values = dict[str, torch.Tensor]
OPTIMIZERS = ("SGD", "AdamW")


class Net(nn.Module):
    """A tied, a frozen and a transposed weight, a scalar, and buffers of three kinds.

    Args:
        seed: of all its numbers.
        width: size of the inputs and of the layers.
        dtype: of all its floats.
    """

    shift: torch.Tensor
    mask: torch.Tensor

    def __init__(self, seed: int, width: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.float64) / width**0.5

        self.first = nn.Linear(width, width, bias=False, dtype=torch.float64)
        self.first.weight.data = random(width, width)
        self.second = nn.Linear(width, width, dtype=torch.float64)
        self.second.weight = self.first.weight  # tied: one parameter with two names
        self.second.bias.data = random(width)
        self.frozen = nn.Parameter(1 + random(width), requires_grad=False)
        self.transposed = nn.Parameter(random(width + 1, width).t())  # not contiguous
        self.gain = nn.Parameter(1 + random())
        self.register_buffer("shift", random(width))
        self.register_buffer("count", torch.tensor(seed))
        self.register_buffer("mask", random(width + 1) > -0.2, persistent=False)
        self.to(dtype)

    def forward(self, x_BW: torch.Tensor) -> torch.Tensor:
        """One number for each row of the inputs."""
        hidden = torch.tanh(self.second(torch.tanh(self.first(x_BW))))
        wide = (hidden * self.frozen + self.shift) @ self.transposed
        return torch.tanh(wide * self.mask).sum(1) * self.gain


def values(named: Iterable[tuple[str, torch.Tensor]]) -> Values:
    """Copies that stay what they are while training goes on."""
    return {name: tensor.detach().clone() for name, tensor in named}


def state(net: nn.Module) -> Values:
    """All parameters and buffers, also those that are not in the state dict."""
    return values(net.named_parameters()) | values(net.named_buffers())


def gradients(net: nn.Module) -> dict[str, Any]:
    """The gradients by name; None where there is none."""
    return {
        name: None if p.grad is None else p.grad.detach().clone()
        for name, p in net.named_parameters()
    }


def loss(net: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean over the rows of a batch."""
    inputs, targets = batch
    return (net(inputs) - targets).square().mean()


def optimizer(name: str, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """One of OPTIMIZERS; sums for means show with SGD, which AdamW hides."""
    if name == "SGD":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


# --- on a rank -----------------------------------------------------------------------------------
def train(
    net: Net,
    wrap: Callable[[nn.Module], nn.Module],
    finish: Callable[[Any], None],
    batches: Sequence[Batch],
    name: str,
) -> dict[str, Any]:
    """Trains one replica as a reader's loop would; one step for each batch.

    Args:
        net: this rank's replica, before it is equal to the others.
        wrap: makes it a data-parallel module.
        finish: what the loop calls between backward and step.
        batches: this rank's.
        name: of the optimizer. SGD is built before the module is wrapped, AdamW afterwards.

    Returns:
        `gradients` of the first step, and `weights` at the end.
    """
    early = optimizer(name, net.parameters()) if name == "SGD" else None
    wrapped = wrap(net)
    chosen = early or optimizer(name, wrapped.parameters())
    first: dict[str, Any] = {}
    for batch in batches:
        loss(wrapped, batch).backward()
        finish(wrapped)
        first = first or gradients(net)
        chosen.step()
        chosen.zero_grad(set_to_none=name == "SGD")
    return {"gradients": first, "weights": values(net.named_parameters())}


# --- in one process ------------------------------------------------------------------------------
def mean_gradients(net: nn.Module, batches: Sequence[Batch]) -> Values:
    """Gradients of the mean of the batches' losses: what all ranks must have."""
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    total = torch.stack([loss(net, batch) for batch in batches]).mean()
    return dict(zip(trained, torch.autograd.grad(total, list(trained.values())), strict=True))


def one_process(
    net: Net, steps: Sequence[Sequence[Batch]], name: str, scale: float = 1.0
) -> Values:
    """Weights after training on all ranks' batches at once.

    Args:
        net: is trained.
        steps: for each step the batches of all ranks.
        name: of the optimizer.
        scale: what the gradients are multiplied with, for known wrong answers.
    """
    chosen = optimizer(name, net.parameters())
    for batches in steps:
        for key, gradient in mean_gradients(net, batches).items():
            net.get_parameter(key).grad = gradient * scale
        chosen.step()
    return values(net.named_parameters())
