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
from torch.utils.hooks import RemovableHandle

from course_lib.comm import CommError, Group
from course_lib.parallel.tensors import find_tensors

Check = Callable[[Optimizer, list[nn.Parameter]], None]


def guard_steps(owner: nn.Module, check: Check) -> None:
    """Calls `check` before every optimizer step that touches a parameter of `owner`.

    Args:
        owner: whose parameters; it is not kept alive, and the guard goes with it.
        check: a method of the owner, or of what only the owner holds; called with the optimizer and
            those of the parameters that it would change; raises to stop the step.
    """
    handle = register_optimizer_step_pre_hook(_StepGuard(owner, weakly(check)))
    # Guards whose owner is gone go here and not in a finalizer: Python's collector may run while
    # torch walks through the hooks, and a dict must not change its size meanwhile.
    hooks: dict[int, Any] = handle.hooks_dict_ref() or {}
    for number, hook in list(hooks.items()):
        if isinstance(hook, _StepGuard) and hook.owner() is None:
            del hooks[number]


class _StepGuard:
    """A hook before every optimizer step, with an owner that it does not keep alive."""

    def __init__(self, owner: nn.Module, check: Callable[..., None]) -> None:
        self.owner, self._check = weakref.ref(owner), check

    def __call__(self, optimizer: Optimizer, *_: Any) -> None:
        owner = self.owner()
        if owner is None:
            return
        mine = {id(p) for p in owner.parameters()}
        given = [p for options in optimizer.param_groups for p in options["params"]]
        touched = [p for p in given if id(p) in mine]
        if touched:
            self._check(optimizer, touched)

    def __reduce__(self) -> tuple[Any, ...]:
        # A class of optimizers that is sent to ranks takes torch's hooks for all steps along. What
        # this one guards stays here.
        return partial, (_lets_pass,)


def _lets_pass(_optimizer: Optimizer, *_: Any) -> None:
    pass


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


def at_backward(output: Any, call: Callable[[], None]) -> None:
    """Calls a method when a backward comes to what came out of a forward.

    The graph holds the output's hooks, and they hold the method's object: it lives until the
    backward, which hooks made by `weakly` need.
    """
    for tensor in find_tensors(output):
        if tensor.grad_fn is not None:
            tensor.register_hook(partial(_calls, call))


def _calls(call: Callable[[], None], _gradient: torch.Tensor) -> None:
    call()


def when_accumulated(parameter: nn.Parameter, call: Callable[..., None]) -> None:
    """Calls `call` for each accumulated gradient, after other such hooks, whenever they were added.

    They may change the gradient, or put another in its place: after it was sent, that would be this
    rank's alone. Torch calls hooks in the order in which they were added, so before each
    accumulation this one is moved behind those that were added since.
    """
    handle = parameter.register_post_accumulate_grad_hook(call)
    parameter.register_hook(partial(_move_last, handle))


def _move_last(handle: RemovableHandle, _gradient: torch.Tensor) -> None:
    hooks = handle.hooks_dict_ref()
    if hooks and next(reversed(hooks)) != handle.id:
        hooks[handle.id] = hooks.pop(handle.id)


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
