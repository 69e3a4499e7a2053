"""What ZeRO and FSDP refuse: what needs whole tensors, and gradients or states that do not fit.

Notebook: 04 ZeRO (Zero1, Zero2, FSDPUnit).
Source: the documentation of torch's FSDP (an optimizer is built after the wrapping).
Costs a look at the units for each step; no communication.
The production version (FSDP2) makes parameters DTensors, which know of what they are pieces.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from course_lib.comm import CommError, Group
from course_lib.parallel.guard import guard_steps, refuse_missing
from course_lib.parallel.optimizer_probe import refuse_whole_tensor
from course_lib.parallel.zero.unit import Unit


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


# --- FSDP ----------------------------------------------------------------------------------------
def refuse_sharded(module: nn.Module, wrapper: type[nn.Module]) -> None:
    """Stops a module of which `wrapper` has sharded a part already."""
    if any(isinstance(m, wrapper) for m in module.modules()):
        raise CommError(
            f"FSDP of a {type(module).__name__}",
            "a part of it that FSDP has sharded already",
            "its parameters are pieces: name the inner modules as units instead",
        )


class ShardGuard:
    """Looks at what is done with an FSDP model, and at every optimizer step that touches it.

    Args:
        owner: the model; the guard goes with it, and does not keep it alive.
        units: its units.
        names: its parameters, and their names.
        rank: for errors.

    Raises (in an optimizer's step):
        CommError: the optimizer needs whole tensors, or was used before they were cut; gradients
            of this rank alone would be used.
    """

    def __init__(
        self, owner: nn.Module, units: Sequence[Unit], names: Mapping[nn.Parameter, str], rank: int
    ) -> None:
        self._units, self._names, self._rank = units, names, rank
        self._tried: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        guard_steps(owner, self._check_step)

    def refuse_missing(self, left: Sequence[Unit]) -> None:
        """Stops a backward that has ended, and left parameters of these units without gradient."""
        missing = [self._names[p] for unit in left for p in unit.pending if p.grad is None]
        refuse_missing(
            missing,
            self._rank,
            "freeze what is never used, or pass find_unused_parameters=True",
        )

    def refuse_other_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Stops the loading of a whole state whose names or shapes are not the model's."""
        shapes = {n: s for unit in self._units for n, s in unit.shapes(self._names).items()}
        wrong = [n for n, s in shapes.items() if n not in state or state[n].shape != s]
        if wrong:
            raise CommError(
                f"load_full_state_dict on rank {self._rank}",
                f"{len(wrong)} parameters that are missing or of another shape: {wrong[:3]}",
                "the state must be of the same module, as full_state_dict gives it",
            )

    def _check_step(self, optimizer: Optimizer, touched: list[nn.Parameter]) -> None:
        asked = f"an optimizer's step on rank {self._rank}"
        self._try_once(asked, optimizer)
        for unit in self._units:
            if any(shard.unsynchronised for shard in unit.shards):
                raise CommError(
                    asked,
                    f"gradients of {unit.name} that no other rank has seen",
                    "the last backward of a window must be outside no_sync()",
                )
        for parameter, name in {p: self._names[p] for p in touched}.items():
            for key, value in optimizer.state[parameter].items():
                if torch.is_tensor(value) and value.dim() and value.shape != parameter.shape:
                    raise CommError(
                        asked,
                        f"{key} of shape {tuple(value.shape)} for {name}, of which this rank has "
                        f"{tuple(parameter.shape)}",
                        "the optimizer was built and used before FSDP: build it after",
                    )

    def _try_once(self, asked: str, optimizer: Optimizer) -> None:
        """Tries an optimizer at its first step, and again where groups have been added to it."""
        tried, groups = self._tried.get(optimizer, 0), len(optimizer.param_groups)
        if tried < groups:
            refuse_whole_tensor(asked, optimizer, tried)
            self._tried[optimizer] = groups
