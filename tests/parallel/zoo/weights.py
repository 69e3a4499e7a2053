"""Models whose parameters are awkward: frozen, tied, made of others, sparse, complex, odd."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.parallel.zoo.specimen import WIDTH


def block(width: int = WIDTH, hidden: int = 5) -> nn.Sequential:
    """Two layers, of sizes that no group divides."""
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))


def chain(*modules: nn.Module) -> nn.Sequential:
    """Modules one after another, and a last layer that belongs to the root."""
    return nn.Sequential(*modules, nn.Linear(WIDTH, 3))


class Lora(nn.Module):
    """A frozen layer and a trained product of two thin matrices beside it (Hu et al., 2021)."""

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, WIDTH) / 3)
        self.up = nn.Parameter(torch.randn(WIDTH, rank) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.base(x) + x @ self.down.t() @ self.up.t())


def lora() -> nn.Module:
    head = nn.Linear(WIDTH, 3).requires_grad_(False)
    return nn.Sequential(Lora(), Lora(), Lora(), head)


def partly_frozen() -> nn.Module:
    model = chain(block(), block(), block())
    model[0].requires_grad_(False)
    model[1][0].weight.requires_grad_(False)
    model[2][2].requires_grad_(False)
    return model


def frozen_prelu() -> nn.Module:
    model = chain(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU(WIDTH)), block())
    model[0][1].requires_grad_(False)
    return model


def weight_norm() -> nn.Module:
    """The old one, whose hook sets the weight before each forward."""
    model = chain(block(), nn.Linear(WIDTH, WIDTH), block())
    for layer in (model[0][0], model[1]):
        nn.utils.weight_norm(layer)
    return model


def parametrized() -> nn.Module:
    model = chain(block(), nn.Linear(WIDTH, WIDTH), block())
    parametrizations.weight_norm(model[0][0])
    parametrizations.orthogonal(model[1])
    return model


def spectral() -> nn.Module:
    """Its power iteration writes to buffers in each forward of training."""
    model = chain(block(), nn.Linear(WIDTH, WIDTH))
    parametrizations.spectral_norm(model[1])
    return model


class Tied(nn.Module):
    """A matrix that is used at both ends, as the embedding of a language model."""

    def __init__(self, by_storage: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.middle = block()
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        weight = self.first.weight
        self.last.weight = nn.Parameter(weight.data) if by_storage else weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.middle(self.first(x)))


def tied_by_storage() -> nn.Module:
    return Tied(by_storage=True)


class Embedded(nn.Module):
    """Tokens, through an embedding whose gradient may be sparse."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(11, WIDTH, sparse=sparse, padding_idx=0)
        self.body = chain(block())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.body(self.table(tokens))


def sparse() -> nn.Module:
    return Embedded(sparse=True)


class Complex(nn.Module):
    """A filter in the frequency domain, as in FNet and Fourier neural operators."""

    def __init__(self) -> None:
        super().__init__()
        self.before = block()
        self.filter = nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.complex128))
        self.after = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.fft.rfft(self.before(x).double()) * self.filter
        return self.after(torch.fft.irfft(waves, n=WIDTH).to(self.after.weight.dtype))


class Mixed(nn.Module):
    """A layer in float32 between layers in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = block(), nn.Linear(WIDTH, 3)
        self.narrow = nn.Linear(WIDTH, WIDTH, dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.narrow(self.first(x).to(self.narrow.weight.dtype))
        return self.last(torch.tanh(y).to(self.last.weight.dtype))


class Odd(nn.Module):
    """A scalar, a single element, and a parameter without elements."""

    def __init__(self, empty: bool = False) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.shift = nn.Parameter(torch.zeros(1))
        self.body = block()
        self.nothing = nn.Parameter(torch.zeros(0, WIDTH)) if empty else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.nothing is not None:
            x = torch.cat([x.to(self.nothing.dtype), self.nothing])
        return self.body(x * self.scale + self.shift)


def without_elements() -> nn.Module:
    return Odd(empty=True)


class Laid(nn.Module):
    """A parameter laid in memory otherwise than in rows: transposed, or one row for all."""

    def __init__(self, expanded: bool = False) -> None:
        super().__init__()
        self.body = block()
        wide = torch.randn(1, WIDTH).expand(WIDTH, WIDTH) if expanded else None
        laid = torch.randn(WIDTH, WIDTH).t() / 3 if wide is None else wide
        self.weight = nn.Parameter(laid, requires_grad=not expanded)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x @ self.weight)


def expanded() -> nn.Module:
    return Laid(expanded=True)


class Part(nn.Module):
    """A trained parameter that is a view of a buffer's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.body = block()
        self.register_buffer("store", torch.randn(3 * WIDTH) / 3)
        self.middle = nn.Parameter(self.store[WIDTH : 2 * WIDTH])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x * self.middle)


class Sibling(nn.Module):
    """Weights read from outside of their module, past its forward and its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = block(), block(), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        penalty = self.first[0].weight.pow(2).mean()
        return self.last(F.relu(x)) + penalty


class Lists(nn.Module):
    """A ModuleList and a ParameterList as units: neither has a forward that could be hooked."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block(), block()])
        self.shifts = nn.ParameterList([torch.zeros(WIDTH), torch.ones(WIDTH)])
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for inner, shift in zip(self.blocks, self.shifts, strict=True):
            x = x + inner(x) + shift
        return self.last(x)


def tokens(step: int, part: int) -> Any:
    """Some of the eleven tokens, the padding among them."""
    generator = torch.Generator().manual_seed(100 * step + part)
    return torch.randint(11, (4, 3), generator=generator)


class Clamped(nn.Module):
    """A weight that its own forward keeps within bounds, in the open or by `data`."""

    def __init__(self, by_data: bool = False) -> None:
        super().__init__()
        self.weight, self.by_data = nn.Parameter(torch.randn(WIDTH, WIDTH)), by_data

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            (self.weight.data if self.by_data else self.weight).clamp_(-0.3, 0.3)
        return x @ self.weight


def clamped() -> nn.Module:
    return chain(Clamped(), block())


def clamped_by_data() -> nn.Module:
    return chain(Clamped(by_data=True), block())


class Renormed(nn.Module):
    """An embedding that scales the rows down that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(11, WIDTH, max_norm=0.7), chain(block())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.body(self.table(tokens))


class Neighbours(nn.Module):
    """A graph's edges as a sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = chain(block())
        edges = (torch.eye(4) + torch.eye(4).roll(1, 0)).to_sparse()
        self.register_buffer("edges", edges, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(torch.sparse.mm(self.edges.to(x.dtype), x))


class Counted(nn.Module):
    """Keeps a number beside its tensors, by `get_extra_state`."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.calls = chain(block()), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.body(x)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]
