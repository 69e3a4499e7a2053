"""Lets a unit of FSDP be used by another method than forward: its hooks run around that as well.

Notebook: 04 ZeRO.
Source: register_fsdp_forward_method of torch's FSDP2.
Costs a gather for each call, as a forward does.
The production version (FSDP2) calls its two hooks by itself, and no others of the module.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from course_lib.comm import CommError


def call_as_forward(module: nn.Module, name: str) -> None:
    """Has `module.NAME(...)` go the way of `module(...)`: hooks, gather, compute, free.

        call_as_forward(model.encoder, "encode")
        FSDP(model, group, [model.encoder, model.decoder])

    Args:
        module: a unit.
        name: of the method; called inside another call of the module, it is called as it is.

    Raises:
        CommError: the module has no such method.
    """
    method = getattr(module, name, None)
    if not callable(method):
        raise CommError(
            f"calls of {name} as forward",
            f"a {type(module).__name__} that has no method of this name",
            "the method is replaced by one that calls the module",
        )
    own = vars(module).get("forward")
    inside = False

    def forward(*args: Any, **kwargs: Any) -> Any:
        restore()  # the method may call forward
        return method(*args, **kwargs)

    def restore() -> None:
        vars(module).pop("forward", None)
        if own is not None:
            module.forward = own

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return method(*args, **kwargs)
        inside, module.forward = True, forward
        try:
            return module(*args, **kwargs)
        finally:
            inside = False
            restore()

    setattr(module, name, call)
