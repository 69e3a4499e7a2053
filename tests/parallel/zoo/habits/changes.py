"""Habits that change the model: frozen, cast, copied, saved, wrapped again, between two steps."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tests.parallel.zoo.habits.trainer import Trainer
from tests.parallel.zoo.specimen import WIDTH, bare, mean_square
from tests.parallel.zoo.weights import block


def freezes(t: Trainer, *, unused: bool = False) -> Any:
    model = t.wrap(t.model(), unused=unused)
    optimizer = t.optimizer(model.parameters())
    t.train(model, optimizer, range(2))
    optimizer.zero_grad()
    bare(model)[0].requires_grad_(False)
    t.train(model, optimizer, range(2, 4))
    return t.state(model)


def freezes_and_says_so(t: Trainer) -> Any:
    return freezes(t, unused=True)


def unfreezes(t: Trainer) -> Any:
    model = t.model()
    model[0].requires_grad_(False)
    wrapped = t.wrap(model)
    optimizer = t.optimizer(model.parameters())
    t.train(wrapped, optimizer, range(2))
    model[0].requires_grad_(True)
    t.train(wrapped, optimizer, range(2, 4))
    return t.state(wrapped)


def casts_and_back(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    t.train(model, optimizer, range(2))
    model.float()
    model.double()
    t.train(model, optimizer, range(2, 4))
    return t.state(model)


def through_a_vector(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    t.train(model, optimizer, range(2))
    vector = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.vector_to_parameters(0.5 * vector, model.parameters())
    t.train(model, optimizer, range(2, 4))
    return t.state(model)


def averages(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer, mean = t.optimizer(model.parameters()), AveragedModel(model)
    for step in range(3):
        t.train(model, optimizer, [step])
        mean.update_parameters(model)
    return [t.state(model), t.state(mean.module)]


def trains_a_copy(t: Trainer) -> Any:
    model = copy.deepcopy(t.wrap(t.model()))
    t.train(model, t.optimizer(model.parameters()))
    return t.state(model)


def saves_it_whole(t: Trainer) -> Any:
    model = t.wrap(t.model())
    t.train(model, t.optimizer(model.parameters()))
    torch.save(model, io.BytesIO())
    return t.state(model)


def wraps_twice(t: Trainer) -> Any:
    """And holds both: of one that is made again, the one before is gone."""
    model = t.model()
    first, second = t.wrap(model), t.wrap(model)
    t.train(second, t.optimizer(model.parameters()))
    return t.state(first)


def wraps_again(t: Trainer) -> Any:
    model = t.model()
    wrapped = t.wrap(model)
    wrapped = t.wrap(model)
    t.train(wrapped, t.optimizer(model.parameters()))
    return t.state(wrapped)


class Listed(nn.Module):
    """Has layers in a plain list, of which torch does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.last = [block().double()], nn.Linear(WIDTH, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers[0](x))


def hides_layers(t: Trainer) -> Any:
    torch.manual_seed(0)
    model = Listed()
    wrapped = t.wrap(model)
    hidden = list(model.layers[0].parameters())
    t.train(wrapped, t.optimizer([*model.parameters(), *hidden]))
    return [t.state(wrapped), [p.detach() for p in hidden]]


def infers_between(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        with torch.inference_mode():
            mean_square(model, t.batch(20 + step))
        t.train(model, optimizer, [step])
    return t.state(model)


def saves_activations_elsewhere(t: Trainer) -> Any:
    model = t.wrap(t.model())
    with torch.autograd.graph.save_on_cpu():
        t.train(model, t.optimizer(model.parameters()))
    return t.state(model)


def loads_by_assigning(t: Trainer) -> Any:
    """Other parameters take the place of those that were wrapped; the optimizer is made again."""
    model = t.model()
    wrapped = t.wrap(model)
    t.train(wrapped, t.optimizer(wrapped.parameters()), range(1))
    state = {name: 0.5 * value for name, value in t.model().state_dict().items()}
    model.load_state_dict(state, assign=True)
    t.train(wrapped, t.optimizer(wrapped.parameters()), range(1, 3))
    return t.state(wrapped)


def compiles_the_wrapper(t: Trainer) -> Any:
    """`torch.compile` of the whole; FSDP's forward runs as it is."""
    model = t.wrap(t.model())
    t.train(torch.compile(model, backend="eager"), t.optimizer(model.parameters()))
    return t.state(model)
