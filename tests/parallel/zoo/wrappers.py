"""The wrappers that the zoo is trained under: DDP, ZeRO-1 and 2, and FSDP in two precisions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.checkpoint import Training, hold_fsdp, hold_whole, hold_zero
from course_lib.comm import Group
from course_lib.parallel import FSDP, BucketedDDP, Precision, Zero1, Zero2
from tests.parallel.zoo.specimen import Specimen

State = dict[str, torch.Tensor]


@dataclass
class Rig:
    """A specimen under a wrapper.

    Attributes:
        model: what the loss is computed with.
        optimizer: whose step is called.
        state: the whole state; collective.
        training: for a checkpoint; None for what is never saved.
        no_sync: in which backwards send nothing; nothing where there is no such thing.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    state: Callable[[], State]
    training: Training | None
    no_sync: Callable[[], AbstractContextManager[Any]] = nullcontext


def trained(model: nn.Module) -> list[nn.Parameter]:
    """What an optimizer is given."""
    return [p for p in model.parameters() if p.requires_grad]


def whole(model: nn.Module) -> Callable[[], State]:
    """The state of a model that is not cut."""
    return lambda: tensors(model.state_dict())


def tensors(state: dict[str, Any]) -> State:
    """What can be compared: not what `get_extra_state` gives."""
    return {n: t.detach().clone() for n, t in state.items() if torch.is_tensor(t)}


def bucketed(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
    wrapped = BucketedDDP(model, group, cap=300, find_unused_parameters=specimen.unused)
    make, options = specimen.optimizer(model)
    optimizer = make(trained(model), **options)
    training = Training(hold_whole(model), optimizer)
    return Rig(wrapped, optimizer, whole(model), training, wrapped.no_sync)


def zero(kind: type[Zero1] | type[Zero2]) -> Callable[[Specimen, nn.Module, Group], Rig]:
    def make_rig(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
        make, options = specimen.optimizer(model)
        unused = {"find_unused_parameters": specimen.unused}
        optimizer = kind(trained(model), make, group, cap=300, **unused, **options)
        training = Training(hold_whole(model), optimizer, hold_zero(model, optimizer))
        return Rig(model, optimizer, whole(model), training)

    return make_rig


def _whole_of(model: FSDP) -> State:
    return tensors(model.full_state_dict())


def fsdp(precision: Precision | None) -> Callable[[Specimen, nn.Module, Group], Rig]:
    def make_rig(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
        units = specimen.submodules(model)
        unused = {"find_unused_parameters": specimen.unused}
        wrapped = FSDP(model, group, units, precision=precision, **unused)
        make, options = specimen.optimizer(model)
        optimizer = make(trained(model), **options)
        training = Training(hold_fsdp(wrapped), optimizer)
        state = partial(_whole_of, wrapped)
        return Rig(wrapped, optimizer, state, training, wrapped.no_sync)

    return make_rig


OURS: dict[str, Callable[[Specimen, nn.Module, Group], Rig]] = {
    "BucketedDDP": bucketed,
    "Zero1": zero(Zero1),
    "Zero2": zero(Zero2),
    "FSDP": fsdp(None),
    "FSDP bf16": fsdp(Precision(parameters=torch.bfloat16)),
}
