"""A parameter has one wrapper: two would average its gradient into two places, or cut it twice.

Notebook: 02 Data parallel (what the wrappers refuse).
Source: none; torch's DistributedDataParallel does not look.
Costs a look at an attribute for each gradient.
The production version (DDP) has both wrappers' all-reduces write to the same gradients.

A wrapper that is made again, as by running a cell a second time, takes the parameters over: the one
before is gone as soon as nobody holds it. What is refused is to train while both are there.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from course_lib.comm import CommError

_MARK = "_wrapped_by"
Claim = tuple[str, int]


def claim(owner: object, parameters: Sequence[torch.Tensor]) -> Claim:
    """Marks parameters as this wrapper's, as long as it lives and no later one claims them."""
    mine = (type(owner).__name__, id(owner))
    for parameter in parameters:
        setattr(parameter, _MARK, mine)
    weakref.finalize(owner, _give_up, parameters, mine)
    return mine


def _give_up(parameters: Sequence[torch.Tensor], mine: Claim) -> None:
    for parameter in parameters:
        if getattr(parameter, _MARK, None) == mine:
            delattr(parameter, _MARK)


def refuse_strangers(
    optimizer: torch.optim.Optimizer, mine: Sequence[torch.Tensor], rank: int
) -> None:
    """Stops a step that would also change a parameter which no wrapper has.

    Args:
        optimizer: that is about to step.
        mine: those of its parameters that are in the wrapper's module.
        rank: for errors.

    Raises:
        CommError: there is one, and it has a gradient, of this rank alone.
    """
    known = {id(p) for p in mine}
    for parameter in (p for options in optimizer.param_groups for p in options["params"]):
        strange = id(parameter) not in known and not hasattr(parameter, _MARK)
        if strange and parameter.grad is not None:
            raise CommError(
                "an optimizer's step",
                f"on rank {rank} a gradient of shape {tuple(parameter.shape)}, of a parameter "
                "that no wrapper has, beside others that have one",
                "nobody averages it: make it a part of the module, as a ModuleList does with "
                "a list of layers, or give it an optimizer of its own",
            )


def refuse_second(mine: Claim, parameter: torch.Tensor, name: str, rank: int) -> None:
    """Stops a wrapper that gets a gradient of a parameter which a later one has taken over.

    Raises:
        CommError: both are there.
    """
    found = getattr(parameter, _MARK, mine)
    if found != mine:
        raise CommError(
            f"a gradient of {name} for a {mine[0]} on rank {rank}",
            f"a {found[0]} that was made of the same parameter later",
            "each would do with the gradient what it does: keep one of the two, or make one "
            "wrapper of a module that holds all that share parameters",
        )


def refuse_cut(asked: str, parameters: Sequence[torch.Tensor]) -> None:
    """Stops a wrapper of parameters that are pieces under another one.

    Raises:
        CommError: FSDP has cut one of them.
    """
    if any(getattr(p, _MARK, ("",))[0] == "FSDP" for p in parameters):
        raise CommError(
            asked,
            "a parameter that FSDP has cut already",
            "it is a piece of itself: build the model again, or make one FSDP of a module that "
            "holds all that share parameters",
        )
