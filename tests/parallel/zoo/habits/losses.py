"""Habits of a loss: which forwards and backwards it takes, and what else it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.parallel.zoo.habits.trainer import Trainer
from tests.parallel.zoo.specimen import WIDTH, mean_square


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
