"""Habits of a loss: which forwards and backwards it takes, and what else it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.parallel.zoo.habits.trainer import Trainer
from tests.parallel.zoo.specimen import WIDTH, mean_square
from tests.parallel.zoo.weights import block


def looks_between(t: Trainer) -> Any:
    """The model is evaluated between a forward and its backward."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss = mean_square(model, t.batch(step))
        model.eval()
        with torch.no_grad():
            model(t.batch(10 + step))
        model.train()
        loss.backward()
        optimizer.step()
    return t.state(model)


def one_graph_twice(t: Trainer) -> Any:
    """Two losses of one forward have a backward each."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        out = model(t.batch(step))
        out.pow(2).mean().backward(retain_graph=True)
        out.sin().mean().backward()
        optimizer.step()
    return t.state(model)


def against_its_inputs(t: Trainer) -> Any:
    """A backward is for the gradient of the inputs alone; what it leaves in weights is dropped."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        rows = t.batch(step).requires_grad_()
        model(rows).pow(2).sum().backward()
        assert rows.grad is not None
        optimizer.zero_grad()
        model(rows.detach() + 0.1 * rows.grad.sign()).pow(2).mean().backward()
        optimizer.step()
    return t.state(model)


def reads_a_weight(t: Trainer) -> Any:
    """A penalty is computed before the forward; FSDP's pieces are as long as the weight's rows."""
    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, t.count, bias=False), nn.Linear(t.count, 3)
    model = nn.Sequential(*layers).double()
    wrapped = t.wrap(model)
    optimizer = t.optimizer(wrapped.parameters())
    for step in range(3):
        optimizer.zero_grad()
        penalty = 0.1 * model[0].weight.sum()
        (penalty + mean_square(wrapped, t.batch(step))).backward()
        optimizer.step()
    return t.state(wrapped)


class Headless(nn.Module):
    """The loss computes the last layer, and a temperature that the forward knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = block(), nn.Linear(WIDTH, 3)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def fuses_the_head(t: Trainer) -> Any:
    """Two backwards a step, so that gradients are there already when the second comes."""
    torch.manual_seed(0)
    bare = Headless().double()
    model = t.wrap(bare)
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(2):
            hidden = model(t.batch(2 * step + micro))
            out = nn.functional.linear(hidden, bare.head.weight, bare.head.bias)
            (out * bare.scale.exp()).pow(2).mean().backward()
        optimizer.step()
    return t.state(model)


def apart_from_outputs(t: Trainer, unused: bool = False) -> Any:
    """A penalty that depends on the rank's batch has a backward of its own."""
    torch.manual_seed(0)
    bare = Headless().double()
    model = t.wrap(bare, unused=unused, keep_whole=[bare.scale, *bare.head.parameters()])
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        x = t.batch(step)
        (bare.head(model(x)) * bare.scale).pow(2).mean().backward()
        (bare.scale * x.mean()).backward()
        optimizer.step()
    return [t.state(model), t.mean(bare.scale)]


def apart_and_says_so(t: Trainer) -> Any:
    return apart_from_outputs(t, unused=True)


class Recurrent(nn.Module):
    """A step in time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.cell(x, state)
        return self.head(state), state


def rolls_out(t: Trainer) -> Any:
    """Three steps in time, each with a loss, and one backward through all."""
    torch.manual_seed(0)
    model = t.wrap(Recurrent().double())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        state, losses = None, []
        for time in range(3):
            out, state = model(t.batch(3 * step + time), state)
            losses.append(out.pow(2).mean())
        torch.stack(losses).sum().backward()
        optimizer.step()
    return t.state(model)
