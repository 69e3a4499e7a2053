"""A small training in which everything counts, and what one process makes of it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from course_lib.comm import Group, all_reduce

BATCH, WIDTH, HIDDEN = 12, 32, 128
Data = tuple[torch.Tensor, torch.Tensor]  # inputs [examples, WIDTH], targets [examples]
PARTS = ("model", "optimizer", "schedule", "scaler", "sampler")


class Model(nn.Module):
    """Two layers with dropout, and a buffer that counts steps and has a say in the result."""

    seen: torch.Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.inner = nn.Parameter(torch.randn(WIDTH, HIDDEN, generator=draw).double() / 6)
        self.outer = nn.Parameter(torch.randn(HIDDEN, generator=draw).double() / 12)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, x_BW: torch.Tensor) -> torch.Tensor:
        """One number for each row."""
        hidden = F.dropout(torch.tanh(x_BW @ self.inner), 0.3)
        return hidden @ self.outer * (1 + 0.05 * self.seen)


class Sampler:
    """The rows of each global batch, shuffled again in each epoch. `state_dict` is its own dict."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.state = {"epoch": 0, "next": 0}

    def take(self) -> torch.Tensor:
        """The rows of the next batch."""
        draw = torch.Generator().manual_seed(self.state["epoch"])
        begin = self.state["next"]
        rows = torch.randperm(self.count, generator=draw)[begin : begin + BATCH]
        self.state["next"] += BATCH
        if self.state["next"] + BATCH > self.count:
            self.state.update({"epoch": self.state["epoch"] + 1, "next": 0})
        return rows

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.state = state


class Scaler:
    """A loss scale that doubles after three steps."""

    def __init__(self) -> None:
        self.scale, self.good = 1024.0, 0

    def update(self) -> None:
        """Ends a step."""
        self.good += 1
        if self.good == 3:
            self.scale, self.good = self.scale * 2, 0

    def state_dict(self) -> dict[str, Any]:
        """Scale and count."""
        return {"scale": self.scale, "good": self.good}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.scale, self.good = state["scale"], state["good"]


class Training:
    """What a step needs.

    Args:
        seed: of the weights.
        count: examples.
    """

    def __init__(self, seed: int, count: int) -> None:
        self.model = Model(seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, weight_decay=0.1)
        self.schedule = LambdaLR(self.optimizer, lambda n: min(1, (n + 1) / 4) * 0.9**n)
        self.scaler, self.sampler = Scaler(), Sampler(count)
        self.step = 0

    def backward(self, data: Data, rows: torch.Tensor) -> torch.Tensor:
        """The loss of some rows, whose gradient is added up, times the scale."""
        inputs, targets = data
        noise = random.gauss(1, 0.05)  # every second one is kept in the state, beside the words
        loss = (self.model(inputs[rows]) - targets[rows]).square().mean() * noise
        (loss * self.scaler.scale).backward()
        return loss.detach()

    def update(self) -> None:
        """The rest of a step, once the gradients are the mean over the ranks."""
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad /= self.scaler.scale
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.scaler.update()
        self.model.seen += 1
        self.step += 1

    def rate(self) -> float:
        """The learning rate of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies of parameters and buffers."""
        return copy.deepcopy(dict(self.model.state_dict()))


def seed_all(seed: int) -> None:
    """Begins all random numbers of this process."""
    torch.manual_seed(seed)
    random.seed(seed)


def make_step(training: Training, data: Data, group: Group) -> dict[str, Any]:
    """One step on a rank; what is seen of it."""
    rows = training.sampler.take()
    seen = {"rows": rows, "rate": training.rate(), "scale": training.scaler.scale}
    loss = training.backward(data, rows[group.index :: group.size])
    for parameter in training.model.parameters():
        assert parameter.grad is not None
        all_reduce(parameter.grad, group, "avg")
    training.update()
    return {**seen, "loss": loss, "step": training.step}


# --- one process ---------------------------------------------------------------------------------
class Stream:
    """The random numbers of one rank, in a process that plays all of them."""

    def __init__(self, seed: int) -> None:
        with self._kept():
            seed_all(seed)
            self.torch, self.python = torch.get_rng_state(), random.getstate()

    @staticmethod
    @contextmanager
    def _kept() -> Iterator[None]:
        before = torch.get_rng_state(), random.getstate()
        try:
            yield
        finally:
            torch.set_rng_state(before[0])
            random.setstate(before[1])

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Random numbers come from here."""
        with self._kept():
            torch.set_rng_state(self.torch)
            random.setstate(self.python)
            yield
            self.torch, self.python = torch.get_rng_state(), random.getstate()


def play(training: Training, streams: Sequence[Stream], data: Data, steps: int) -> list[Any]:
    """The losses of all ranks in each step, and the rows, rate and scale; trains."""
    found = []
    for _ in range(steps):
        rows = training.sampler.take()
        seen = {"rows": rows, "rate": training.rate(), "scale": training.scaler.scale}
        losses = []
        for index, stream in enumerate(streams):
            with stream.drawn():
                losses.append(training.backward(data, rows[index :: len(streams)]))
        for parameter in training.model.parameters():
            assert parameter.grad is not None
            parameter.grad /= len(streams)
        training.update()
        found.append({**seen, "losses": losses, "step": training.step})
    return found


def load(fresh: Training, training: Training, without: Sequence[str] = ()) -> None:
    """Makes `fresh` what `training` is, but for some parts."""
    for name in PARTS:
        if name not in without:
            state = copy.deepcopy(getattr(training, name).state_dict())
            getattr(fresh, name).load_state_dict(state)
    fresh.step = training.step
