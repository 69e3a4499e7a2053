"""Small models of known kinds: convolutional, recurrent, with experts, encoder and decoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.parallel.zoo.specimen import WIDTH
from tests.parallel.zoo.weights import block, chain


class Convolutions(nn.Module):
    """Batch norms between convolutions, channels last in memory: parameters with other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.head = nn.Linear(4, 2)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        return self.head(self.second(self.body(x)).mean((2, 3)))


def images(step: int, part: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + part)
    return torch.randn(3, 3, 6, 6, generator=generator, dtype=torch.float64)


class Recurrent(nn.Module):
    """An LSTM, which keeps its weights in a list of its own, flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 5, num_layers=2, batch_first=True)
        self.gru = nn.GRU(5, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (_, cell) = self.lstm(x.unsqueeze(0))
        y, _ = self.gru(y)
        return self.head(y) + cell.mean()


class Experts(nn.Module):
    """A router that sends each row to one of three experts; one may have none on some rank."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3, bias=False)
        self.experts = nn.ModuleList(block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.router.weight.dtype)
        gates = self.router(x).softmax(-1)
        weight, chosen = gates.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().squeeze(-1)
            if len(mine):
                out = out.index_add(0, mine, expert(x[mine]) * weight[mine, None])
        return x + out


class Attention(nn.Module):
    """Attention of one head, over itself or over what an encoder has made."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = (nn.Linear(WIDTH, n * WIDTH) for n in (1, 2, 1))

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        keys, values = self.kv(x if memory is None else memory).chunk(2, -1)
        return x + self.out(F.scaled_dot_product_attention(self.q(x), keys, values))


class EncoderDecoder(nn.Module):
    """Every block of the decoder reads the encoder's last output."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(Attention(), Attention())
        self.decoder = nn.ModuleList(Attention() for _ in range(2))
        self.own = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(x.unsqueeze(0))
        y = x.flip(0).unsqueeze(0)
        for own, cross in zip(self.own, self.decoder, strict=True):
            y = cross(own(y), memory)
        return y


class Buffers(nn.Module):
    """Buffers of integers, bools and floats, one not saved, and one that is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        self.body = chain(block(), block())
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(WIDTH, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(2, WIDTH))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.register_buffer("row", self.mean[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.steps += 1
            self.seen |= x[0] > 0.5
            self.mean[0] += x.mean(0)
            self.row += 1
        return self.body(x - 0.1 * self.mean[1].to(x.dtype))
