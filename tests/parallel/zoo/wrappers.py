"""The wrappers that the zoo is trained under: the course's five, and torch's three beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
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
        training: for a checkpoint; None for torch's.
        no_sync: in which backwards send nothing; nothing where there is no such thing.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    state: Callable[[], State]
    training: Training | None = None
    no_sync: Callable[[], AbstractContextManager[Any]] = nullcontext


def trained(model: nn.Module) -> list[nn.Parameter]:
    """What an optimizer is given."""
    return [p for p in model.parameters() if p.requires_grad]


def whole(model: nn.Module) -> Callable[[], State]:
    """The state of a model that is not cut."""
    return lambda: {n: t.detach().clone() for n, t in model.state_dict().items()}


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


def fsdp(precision: Precision | None) -> Callable[[Specimen, nn.Module, Group], Rig]:
    def make_rig(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
        units = specimen.submodules(model)
        unused = {"find_unused_parameters": specimen.unused}
        wrapped = FSDP(model, group, units, precision=precision, **unused)
        make, options = specimen.optimizer(model)
        optimizer = make(trained(model), **options)
        training = Training(hold_fsdp(wrapped), optimizer)
        return Rig(wrapped, optimizer, wrapped.full_state_dict, training, wrapped.no_sync)

    return make_rig


OURS: dict[str, Callable[[Specimen, nn.Module, Group], Rig]] = {
    "BucketedDDP": bucketed,
    "Zero1": zero(Zero1),
    "Zero2": zero(Zero2),
    "FSDP": fsdp(None),
    "FSDP bf16": fsdp(Precision(parameters=torch.bfloat16)),
}


# --- torch's, over the same process group --------------------------------------------------------
def torch_ddp(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
    wrapped = nn.parallel.DistributedDataParallel(
        model, process_group=group.handle, find_unused_parameters=specimen.unused
    )
    make, options = specimen.optimizer(model)
    optimizer = make(trained(model), **options)
    return Rig(wrapped, optimizer, whole(model), no_sync=wrapped.no_sync)


def torch_zero(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = nn.parallel.DistributedDataParallel(
        model, process_group=group.handle, find_unused_parameters=specimen.unused
    )
    make, options = specimen.optimizer(model)
    optimizer = ZeroRedundancyOptimizer(trained(model), make, process_group=group.handle, **options)
    return Rig(wrapped, optimizer, whole(model), no_sync=wrapped.no_sync)


def torch_fsdp(specimen: Specimen, model: nn.Module, group: Group) -> Rig:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group.handle, "cpu")
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, group.ranks[0], group.handle)  # it takes each rank's own values
    for unit in reversed(specimen.submodules(model)):
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    make, options = specimen.optimizer(model)
    optimizer = make(trained(model), **options)

    def state() -> State:
        both = model.state_dict().items()
        return {n: t.full_tensor() if hasattr(t, "full_tensor") else t.clone() for n, t in both}

    return Rig(model, optimizer, state)


TORCH: dict[str, Callable[[Specimen, nn.Module, Group], Rig]] = {
    "DDP": torch_ddp,
    "ZeroRedundancyOptimizer": torch_zero,
    "FSDP2": torch_fsdp,
}
NAMES: Sequence[str] = tuple(OURS)
