"""What all wrappers need: memory booked as long as they live, and checks of optimizer steps.

Notebook: 02 Data parallel (what the wrappers refuse).
Source: torch.optim.optimizer.register_optimizer_step_pre_hook.
Costs a look at a set for each step; no communication.
The production version (DDP) does not check this: replicas that have diverged train on.

What only one family refuses is in `data/ddp_guard.py` and `zero/guard.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from course_lib.comm import CommError, Group

Check = Callable[[Optimizer, list[nn.Parameter]], None]


def guard_steps(owner: nn.Module, check: Check) -> None:
    """Calls `check` before every optimizer step that touches a parameter of `owner`.

    Args:
        owner: whose parameters; it is not kept alive, and the guard goes with it.
        check: a method of the owner, or of what only the owner holds; called with the optimizer and
            those of the parameters that it would change; raises to stop the step.
    """
    known, check = weakref.ref(owner), weakly(check)

    def before_step(optimizer: Optimizer, *_: Any) -> None:
        alive = known()
        if alive is None:
            return
        mine = {id(p) for p in alive.parameters()}
        given = [p for options in optimizer.param_groups for p in options["params"]]
        touched = [p for p in given if id(p) in mine]
        if touched:
            check(optimizer, touched)

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


def keep_until_backward(owner: object, output: Any) -> None:
    """Has what came out of a forward keep `owner` alive, since hooks made by `weakly` do not.

    The graph holds the output's hooks, and they hold the owner; there is nothing for them to do.
    """
    for tensor in tree_leaves(output):
        if torch.is_tensor(tensor) and tensor.requires_grad:
            tensor.register_hook(partial(_nothing, owner))


def _nothing(_owner: object, _gradient: torch.Tensor) -> None:
    return


def book_until_gone(owner: object, group: Group, memory_class: str, count: int) -> None:
    """Counts `count` bytes as held in `memory_class` until `owner` is freed."""
    group.ledger.add_memory(memory_class, count)
    weakref.finalize(owner, group.ledger.add_memory, memory_class, -count)


def refuse_missing(names: list[str], rank: int, why: str) -> None:
    """Stops a backward that gave some parameters no gradient.

    Args:
        names: those parameters' names; without any, all is well.
        rank: this one.
        why: the last line of the error.
    """
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise CommError(
            "a gradient of every parameter that needs one",
            f"none for {', '.join(names[:3])}{more} on rank {rank}",
            why,
        )
