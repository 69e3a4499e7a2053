"""A residual feed-forward block in one process: what ranks with parts of it must have.

Paper: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4.2. Costs nothing on the wire: it runs in the process that judges.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear

EPS = 0.01  # of the norm
Tensors = dict[str, torch.Tensor]


class Whole:
    """The same block in one process, with the whole sequence.

    Args:
        inputs: what the driver was given, rank by rank.
    """

    def __init__(self, inputs: list[dict[str, Any]]) -> None:
        self.world = len(inputs)
        self.inputs = inputs
        self.weights = {
            name: w.clone().requires_grad_() for name, w in inputs[0]["weights"].items()
        }
        self.bias = self.weights.get("bias", torch.zeros(()))
        self.name = f"({self.world} ranks)"

    def joined(self, name: str, number: int) -> torch.Tensor:
        """`xs` or `slopes` of all ranks, along the sequence."""
        return torch.cat([given[name][number] for given in self.inputs], 1)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        """The norm of any tokens."""
        return layer_norm(x, x.shape[2:], self.weights["gain"], self.weights["shift"], EPS)

    def inner(self, normed: torch.Tensor, index: int | None = None) -> torch.Tensor:
        """What `down` gives, without bias; of one rank's part of F if asked."""
        rows = torch.arange(len(self.weights["up"]))
        if index is not None:
            rows = rows.tensor_split(self.world)[index]
        up, down = self.weights["up"][rows], self.weights["down"][:, rows]
        return linear(gelu(linear(normed, up)), down)

    def output(self, rank: int, scale: float = 1.0, bias: float = 1.0) -> torch.Tensor:
        """One rank's tokens of the output for the first input, with slips if asked."""
        x = self.inputs[rank]["xs"][0]
        return (x + scale * self.inner(self.norm(x)) + bias * self.bias).detach()

    def gradients(self, number: int, rank: int | None = None) -> Tensors:
        """Of the sum of all ranks' losses; or of the loss on one rank's tokens."""
        x, slopes = self.joined("xs", number), self.joined("slopes", number)
        if rank is not None:
            x, slopes = (t.chunk(self.world, 1)[rank] for t in (x, slopes))
        x = x.clone().requires_grad_()
        loss = ((x + self.inner(self.norm(x)) + self.bias) * slopes).sum()
        grads = torch.autograd.grad(loss, [x, *self.weights.values()])
        return dict(zip(["x", *self.weights], grads, strict=True))

    def only_cut(self, rank: int) -> torch.Tensor:
        """x.grad if the backward of the gather cuts: one rank's part of F for its own tokens."""
        x, slopes = (self.joined(name, 0).clone() for name in ("xs", "slopes"))
        x.requires_grad_()
        loss = ((x + self.inner(self.norm(x), rank)) * slopes).sum()
        return self.own(torch.autograd.grad(loss, [x])[0], rank)

    def own(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """One rank's tokens."""
        return tensor.chunk(self.world, 1)[rank]

    def cut(self, name: str, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """One rank's part of a weight, or of its gradient."""
        if name in ("up", "down"):
            return tensor.tensor_split(self.world, int(name == "down"))[rank]
        return tensor
