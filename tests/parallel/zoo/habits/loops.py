"""Habits of a loop: what is done with gradients, optimizers and schedules between two steps."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.parallel.zoo.habits.trainer import Trainer
from tests.parallel.zoo.specimen import WIDTH, bare, mean_square
from tests.parallel.zoo.weights import block


def forgotten_by_the_module(t: Trainer) -> Any:
    """A batch is dropped, as after a loss that is not finite."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        t.backward(model, 10 + step)
        model.zero_grad()
        t.backward(model, step)
        optimizer.step()
        model.zero_grad()
    return t.state(model)


def two_by_turns(t: Trainer) -> Any:
    """A generator and a critic; each one's loss leaves gradients in the other."""
    torch.manual_seed(1)
    other = nn.Sequential(block(), nn.Linear(WIDTH, WIDTH)).double()
    maker, critic = t.wrap(other), t.wrap(t.model())
    first, second = t.optimizer(maker.parameters()), t.optimizer(critic.parameters())
    for step in range(3):
        maker.zero_grad()
        critic(maker(t.batch(step))).pow(2).mean().backward()
        first.step()
        critic.zero_grad()
        critic(maker(t.batch(step)).detach()).mean().backward()
        second.step()
    return [t.state(maker), t.state(critic)]


class Heads(nn.Module):
    """Two tasks that share a body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = block(), nn.Linear(WIDTH, 2), nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        head = self.left if left else self.right
        return head(self.body(x))


def zeros_for_the_unused(t: Trainer) -> Any:
    """A head that a step leaves out has a gradient of zeros, by which momentum moves it."""
    torch.manual_seed(0)
    model = t.wrap(Heads().double(), unused=True)
    optimizer = t.optimizer(model.parameters())
    for step in range(4):
        optimizer.zero_grad(set_to_none=False)
        model(t.batch(step), step % 2 == 0).pow(2).mean().backward()
        optimizer.step()
    return t.state(model)


def assigned(t: Trainer) -> Any:
    model = t.wrap(t.model())
    parameters = list(model.parameters())
    optimizer = t.optimizer(parameters)
    for step in range(3):
        slopes = torch.autograd.grad(mean_square(model, t.batch(step)), parameters)
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope
        optimizer.step()
        optimizer.zero_grad()
    return t.state(model)


def from_before(t: Trainer) -> Any:
    model = t.model()
    t.backward(model, 9)
    model = t.wrap(model)
    optimizer = t.optimizer(model.parameters())
    optimizer.step()
    return t.state(model)


def in_the_backward(t: Trainer) -> Any:
    """Each parameter is updated as soon as its gradient is there, by a hook from before."""
    model = t.model()
    optimizers: dict[Any, torch.optim.Optimizer] = {}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    wrapped = t.wrap(model)
    make = torch.optim.SGD
    optimizers.update({p: t.optimizer([p], make, lr=0.05) for p in model.parameters()})
    t.backward(wrapped, 0)
    return t.state(wrapped)


def clipped_in_two_lines(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        t.backward(model, step)
        found = [p.grad for p in model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(found)
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.01, norm)
        optimizer.step()
    return t.state(model)


def scaled(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(mean_square(model, t.batch(step))).backward()
        scaler.step(optimizer)
        scaler.update()
    return t.state(model)


def with_line_search(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(
        model.parameters(), torch.optim.LBFGS, max_iter=4, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return t.mean(t.backward(model, 0))

    for _ in range(2):
        optimizer.step(closure)
    return t.state(model)


def changed_by_hooks(t: Trainer) -> Any:
    """Hooks that come after the wrapper's put other gradients in place."""
    model = t.wrap(t.model())

    def halve(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad = parameter.grad * 0.5

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(halve)
    t.train(model, t.optimizer(model.parameters()))
    return t.state(model)


def changed_by_later_hooks(t: Trainer) -> Any:
    """Hooks that come after Zero2's as well, and pass over parameters without a gradient."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    _halve_by_hooks(model)
    t.train(model, optimizer)
    return t.state(model)


def past_the_wrapper(t: Trainer) -> Any:
    """No forward of the wrapper tells it that a backward begins."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    _halve_by_hooks(model)
    t.train(bare(model), optimizer)
    return t.state(model)


def _halve_by_hooks(model: nn.Module) -> None:
    def halve(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(halve)


def kept_elsewhere(t: Trainer) -> Any:
    """Sums of gradients in tensors of one's own, as Megatron-LM has them in float32."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    sums: dict[torch.Tensor, torch.Tensor] = {}

    def keep(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        sums[parameter] = sums.get(parameter, 0) + parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(keep)
    for step in range(2):
        t.backward(model, step)
    for parameter, total in sums.items():
        parameter.grad = total
    optimizer.step()
    return t.state(model)


def one_cycle(t: Trainer) -> Any:
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    t.train(model, optimizer, range(5), lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6))
    return t.state(model)


def resumed(t: Trainer) -> Any:
    """The states of optimizer and schedule go through `state_dict`, as in torch's tutorial."""
    model = t.wrap(t.model())
    optimizer = t.optimizer(model.parameters())
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    t.train(model, optimizer, range(3), schedule)
    weights, saved = t.state(model), copy.deepcopy([optimizer.state_dict(), schedule.state_dict()])
    fresh = t.model()
    fresh.load_state_dict(weights)
    model = t.wrap(fresh)
    optimizer = t.optimizer(model.parameters())
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for part, state in zip((optimizer, schedule), saved, strict=True):
        part.load_state_dict(state)
    t.train(model, optimizer, range(3, 6), schedule)
    return t.state(model)


class Counting(torch.optim.Optimizer):
    """Counts its steps among its options, as schedule-free optimizers do."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for options in self.param_groups:
            options["count"] += 1
            for parameter in options["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-options["lr"] / options["count"])


def counting(t: Trainer) -> Any:
    model = t.wrap(t.model())
    t.train(model, t.optimizer(model.parameters(), Counting))
    return t.state(model)


def sorted_by_dims(t: Trainer) -> Any:
    """Only matrices decay."""
    model = t.wrap(t.model())
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    t.train(model, t.optimizer(groups))
    return t.state(model)
