"""What ZeRO refuses: what needs whole tensors, and gradients or states that do not fit.

Notebook: 04 ZeRO (Zero1, Zero2, FSDPUnit).
Source: the documentation of torch's FSDP (an optimizer is built after the wrapping).
Costs a look at the units for each step; no communication.
The production version (FSDP2) makes parameters DTensors, which know of what they are pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.comm import CommError, Group

# Optimizers whose update of one element depends on others: norms, factors, a line search.
WHOLE_TENSOR = (torch.optim.Adafactor, torch.optim.LBFGS, torch.optim.Muon)


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


# --- ZeRO-1 and ZeRO-2 ---------------------------------------------------------------------------
def refuse_nothing_trained(asked: str, trained: Sequence[nn.Parameter]) -> None:
    """Stops a wrapper that no parameter would be for."""
    if not trained:
        raise CommError(
            asked, "no parameter that needs a gradient", "there is nothing to keep a state for"
        )


def refuse_other_shard(state: Mapping[str, Any], group: Group) -> None:
    """Stops a rank from loading the state of another rank, or of another number of ranks."""
    found = (state["index"], state["size"])
    if found != (group.index, group.size):
        raise CommError(
            f"optimizer state for index {group.index} of {group.size}",
            f"the state of index {found[0]} of {found[1]}",
            "each rank has its own shard; a checkpoint that is resharded goes over the disk",
        )


def missing_gradients(
    name: str, missing: Sequence[nn.Parameter], trained: Sequence[nn.Parameter], rank: int
) -> CommError:
    """The error for a backward, or a step of the optimizer `name`, without some gradients."""
    shapes = ", ".join(str(tuple(p.shape)) for p in missing[:3])
    return CommError(
        f"{name} with a gradient for each of {len(trained)} parameters",
        f"none for {len(missing)} of them on rank {rank}, of shapes {shapes}"
        + (", ..." if len(missing) > 3 else ""),
        "others may have one: freeze what is never used, or pass find_unused_parameters=True",
    )


def taken_gradient(parameter: nn.Parameter, rank: int) -> CommError:
    """The error for a gradient that is not there any more when its hook is called."""
    return CommError(
        f"a gradient of shape {tuple(parameter.shape)} for Zero2",
        f"another hook has taken it away on rank {rank}",
        "two Zero2 of one model: build the model anew as well",
    )
