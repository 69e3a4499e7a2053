"""`module.zero_grad()` means the gradients that ZeRO has put away, too.

Notebook: 04 ZeRO (Zero2).
Source: none; DeepSpeed's engine has a `zero_grad` of its own.
Costs a look at an attribute of each parameter when a module's `zero_grad` is called.
The production version (DeepSpeed) does not see the module's, and adds the next gradients up.

After a backward under Zero2 no parameter has a gradient: the shards have the averages. A loop that
trains two networks by turns drops what one's loss has left in the other by `module.zero_grad()`,
which looks at parameters alone. Torch has no hook there, so the method is replaced once by one that
looks for a mark.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

_MARK = "_forgets_gradient"


def follow_zero_grad(
    parameters: Iterable[nn.Parameter], forget: Callable[[nn.Parameter], None]
) -> None:
    """Calls `forget` for each of these parameters that is in a module whose `zero_grad` is called.

    Args:
        parameters: whose gradients are kept elsewhere.
        forget: a method; its object is not kept alive.
    """
    _watch()
    for parameter in parameters:
        setattr(parameter, _MARK, _Forget(forget))


class _Forget:
    """A method that is called as long as its object is there; no copy of a parameter has it."""

    def __init__(self, method: Callable[[nn.Parameter], None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, parameter: nn.Parameter) -> None:
        method = self._method()
        if method is not None:
            method(parameter)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (_keep,)


def _keep(_: nn.Parameter) -> None:
    pass


def _watch() -> None:
    plain = nn.Module.zero_grad
    if getattr(plain, _MARK, False):
        return

    @functools.wraps(plain)
    def zero_grad(self: nn.Module, set_to_none: bool = True) -> None:
        plain(self, set_to_none)
        for parameter in self.parameters():
            getattr(parameter, _MARK, _keep)(parameter)

    setattr(zero_grad, _MARK, True)
    nn.Module.zero_grad = zero_grad  # type: ignore[method-assign]
