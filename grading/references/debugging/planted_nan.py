"""A small model in which a bad value can be planted anywhere, also between its layers."""

from __future__ import annotations

import torch
from torch import nn

COLUMNS = 7  # of the batch


class Narrow(nn.Module):
    """An exponential in half precision: overflows above 11, and its gradient above 65504."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return x.half().exp().double()


class Norm(nn.Module):
    """Divides each row by its root mean square."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


class Split(nn.Module):
    """Two halves of the columns, the second scaled, and their mean, which nobody needs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A tuple; the gradient of its last part is None."""
        first, second = x.chunk(2, -1)
        return first, second * self.scale, first.mean()


class Block(nn.Module):
    """A gated residual block, which computes between its parts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.split, self.act = Norm(), Split(), Narrow()
        self.linear = nn.Linear(width, 2 * width, dtype=torch.float64)
        self.before = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        x = x * self.before
        first, second, _ = self.split(self.linear(self.norm(x)))
        return x + self.act(first) * second / 10


class Plus(nn.Module):
    """Adds a number."""

    def forward(self, x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return x + number


class Length(nn.Module):
    """The length of each row; at length 0 its gradient is 0/0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A number for each row."""
        return x.square().sum(-1).sqrt()


class Net(nn.Module):
    """A stem, blocks, one module that is used twice and has two names, a head and a length.

    The loss is computed outside of all of them.
    """

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Linear(COLUMNS, width, dtype=torch.float64)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.plus = self.again = Plus()
        self.once = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.twice = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.head = nn.Linear(width, 3, bias=False, dtype=torch.float64)
        self.length = Length()
        self.power = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.offset = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The loss; `rows` are whole numbers: which rows of the batch count."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = self.again(self.plus(x, self.once), self.twice)
        lengths = self.length(self.head(x))[rows]
        return (lengths.mean() + self.offset).sqrt() * self.power
