"""What FSDP refuses when it is made: modules that cannot be cut into these units.

Notebook: 04 ZeRO (FSDPUnit).
Source: the documentation of torch's FSDP.
Costs a look at each module and each tensor; no communication.
The production version (FSDP2) refuses containers and shared modules, and meets the rest later.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getattr_static

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.one_wrapper import refuse_cut
from course_lib.parallel.shared_memory import refuse_shared_memory
from course_lib.parallel.uncopied import refuse_max_norm, refuse_unsent


def refuse_replicas(group: Group, replicas: Group | None) -> None:
    """Stops replicas that are among the ranks of the shards, where each has another piece.

    Args:
        group: the ranks that share the shards.
        replicas: the ranks that are said to have the same shard as this one.

    Raises:
        CommError: both have another rank than this one.
    """
    both = sorted(set(group.ranks) & set(replicas.ranks) - {group.rank}) if replicas else []
    if both:
        raise CommError(
            f"FSDP over {group} with replicas on {replicas}",
            f"{both}, in both groups",
            "replicas have the same shard: one rank of each sharding group, at the same index",
        )


def refuse_uncuttable(
    module: nn.Module, units: Sequence[nn.Module], wrapper: type[nn.Module]
) -> None:
    """Stops a module that cannot be cut into these units.

    Args:
        module: the whole.
        units: those of its submodules that are gathered by themselves.
        wrapper: FSDP.

    Raises:
        CommError: a part is cut already; a unit is a mere container; a parameter has no shape yet,
            or lies in the memory of another.
    """
    asked = f"FSDP of a {type(module).__name__}"
    if any(isinstance(m, wrapper) for m in module.modules()):
        raise CommError(
            asked,
            "a part of it that FSDP has sharded already",
            "its parameters are pieces: name the inner modules as units instead",
        )
    refuse_cut(asked, list(module.parameters()))
    refuse_unsent(asked, {**dict(module.named_parameters()), **dict(module.named_buffers())})
    refuse_max_norm(asked, module)
    if any(p.grad is not None for p in module.parameters()):
        raise CommError(
            asked,
            "gradients that are there already, of whole parameters",
            "parameters are pieces from now on: call zero_grad first",
        )
    names = {m: name for name, m in module.named_modules()}
    scripted = [name for m, name in names.items() if isinstance(m, torch.jit.ScriptModule)]
    if scripted:
        raise CommError(
            asked,
            f"{scripted[0] or 'the module'}, which torch.jit has compiled",
            "it takes no hooks, which gather a unit before it computes: use torch.compile inside",
        )
    for unit in units:
        if _has_no_forward(unit):
            raise CommError(
                f"{asked} with the unit {names.get(unit, '?')}",
                f"a {type(unit).__name__}, which has no forward",
                "a unit is gathered when it is called: name the modules in it as units",
            )
    buffers = dict(module.named_buffers())
    refuse_shared_memory(asked, {**dict(module.named_parameters()), **buffers})


def _has_no_forward(unit: nn.Module) -> bool:
    # Not by `type(unit).forward`: what torch.jit has scripted raises where it is asked for.
    inherited = getattr_static(type(unit), "forward") is nn.Module.forward
    return inherited and "forward" not in vars(unit)
