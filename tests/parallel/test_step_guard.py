"""The hooks before optimizer steps: gone with their owners, but never while torch walks them."""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_lib.comm import Group
from course_lib.parallel.guard import guard_steps


class Owner(nn.Module):
    """Has a parameter, counts its checks, and is part of a cycle that only the collector ends."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.checks = 0
        self.cycle = [self]
        guard_steps(self, self.check)

    def check(self, optimizer: torch.optim.Optimizer, touched: list[nn.Parameter]) -> None:
        self.checks += 1


def step(parameter: nn.Parameter) -> None:
    parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD([parameter], lr=0.1).step()


def test_a_collection_in_the_middle_of_a_step_stops_nothing() -> None:
    def collect(*_: Any) -> None:
        gc.collect()

    gc.disable()
    handle = register_optimizer_step_pre_hook(collect)
    try:
        dead = [Owner() for _ in range(3)]
        alive = Owner()
        dead.clear()
        step(alive.weight)  # the owners end while torch goes through their hooks
        assert alive.checks == 1
    finally:
        gc.enable()
        handle.remove()


def test_guards_of_the_dead_are_gone_with_the_next_guard() -> None:
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    hooks = handle.hooks_dict_ref()
    handle.remove()
    first = Owner()
    before = len(hooks)
    del first
    gc.collect()
    second = Owner()
    assert len(hooks) <= before
    step(second.weight)
    assert second.checks == 1


def test_an_optimizer_of_ones_own_can_be_sent_to_ranks(ranks: Any) -> None:
    class Mine(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step()

    owner = Owner()
    step(owner.weight)
    Mine([owner.weight], lr=0.1)  # from now on its step looks at torch's hooks

    def run(group: Group) -> float:
        weight = torch.nn.Parameter(torch.ones(1))
        weight.grad = torch.ones(1)
        Mine([weight], lr=0.5).step()
        return weight.item()

    assert ranks(run, 2) == [0.5, 0.5] and owner.checks == 1
