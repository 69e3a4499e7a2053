"""What all wrappers need: memory booked as long as they live, and checks of optimizer steps.

Notebook: 02 Data parallel (what the wrappers refuse).
Source: torch.optim.optimizer.register_optimizer_step_pre_hook.
Costs a look at a set for each step; no communication.
The production version (DDP) does not check this: replicas that have diverged train on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_lib.comm import CommError, Group

# Optimizers whose update of one element depends on others: norms, factors, a line search.
WHOLE_TENSOR = (torch.optim.Adafactor, torch.optim.LBFGS, torch.optim.Muon)

Check = Callable[[Any, Optimizer, list[nn.Parameter]], None]


def guard_steps(owner: nn.Module, check: Check) -> None:
    """Calls `check` before every optimizer step that touches a parameter of `owner`.

    Args:
        owner: whose check it is; the guard ends with it, and does not keep it alive.
        check: called with the owner, the optimizer and those of the owner's parameters that it
            would change; raises to stop the step. Must not hold on to the owner itself.
    """
    known = weakref.ref(owner)

    def before_step(optimizer: Optimizer, *_: Any) -> None:
        alive = known()
        if alive is None:
            return
        mine = {id(p) for p in alive.parameters()}
        given = [p for options in optimizer.param_groups for p in options["params"]]
        touched = [p for p in given if id(p) in mine]
        if touched:
            check(alive, optimizer, touched)

    handle = register_optimizer_step_pre_hook(before_step)
    weakref.finalize(owner, handle.remove)


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A method as a hook that does not keep its object alive.

    torch holds a tensor's hooks where Python's collector does not see them, so a wrapper that its
    own parameters' hooks point to would never be freed.
    """
    known = weakref.WeakMethod(method)

    def hook(*args: Any) -> None:
        alive = known()
        if alive is not None:
            alive(*args)

    return hook


def book_until_gone(owner: object, group: Group, memory_class: str, count: int) -> None:
    """Counts `count` bytes as held in `memory_class` until `owner` is freed."""
    group.ledger.add_memory(memory_class, count)
    weakref.finalize(owner, group.ledger.add_memory, memory_class, -count)


def refuse_whole_tensor(asked: str, optimizer: Optimizer) -> None:
    """Stops an optimizer that needs whole tensors, where it would get pieces of them.

    Args:
        asked: the first line of the error.
        optimizer: the one that makes the updates, or a wrapper that has it as `inner`.

    Raises:
        CommError: it is one of torch's that do not work element by element.
    """
    inner: Optimizer | None = optimizer
    while inner is not None:
        if isinstance(inner, WHOLE_TENSOR):
            raise CommError(
                asked,
                f"{type(inner).__name__}, whose update of an element depends on others",
                "each rank has pieces of parameters: use one like SGD or Adam, or DDP",
            )
        inner = getattr(inner, "inner", None)


def refuse_stale_state(asked: str, optimizer: Optimizer, names: Mapping[nn.Parameter, str]) -> None:
    """Stops a step whose state is of whole parameters, when only pieces of them are left.

    Args:
        asked: the first line of the error.
        optimizer: about to make a step.
        names: the parameters that it would change, and their names.

    Raises:
        CommError: a state tensor has another shape than its parameter.
    """
    for parameter, name in names.items():
        for key, value in optimizer.state[parameter].items():
            if torch.is_tensor(value) and value.dim() and value.shape != parameter.shape:
                raise CommError(
                    asked,
                    f"{key} of shape {tuple(value.shape)} for {name}, of which this rank has "
                    f"{tuple(parameter.shape)}",
                    "the optimizer was built and used before FSDP: build it after",
                )
