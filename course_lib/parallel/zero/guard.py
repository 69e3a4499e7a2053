"""What Zero1 and Zero2 refuse: parameters in shared memory, gradients or states that do not fit.

Notebook: 04 ZeRO (Zero1, Zero2).
Source: the documentation of torch's ZeroRedundancyOptimizer.
Costs a look at who else holds a parameter's memory, when it is given; no communication.
The production version (DeepSpeed) moves parameters to flat memory too, and does not look.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from course_lib.comm import CommError, Group
from course_lib.parallel.shared_memory import refuse_shared_memory
from course_lib.parallel.uncopied import refuse_max_norm


def refuse_nothing_trained(asked: str, trained: Sequence[nn.Parameter]) -> None:
    """Stops a wrapper that no parameter would be for."""
    if not trained:
        raise CommError(
            asked, "no parameter that needs a gradient", "there is nothing to keep a state for"
        )


def refuse_lazy(asked: str, parameters: Iterable[torch.Tensor]) -> None:
    """Stops parameters that have no shape yet."""
    if any(is_lazy(p) for p in parameters):
        raise CommError(
            asked,
            "a parameter that has no shape yet",
            "a lazy module makes its parameters in its first forward: call it once before",
        )


def refuse_cast(parameter: nn.Parameter, flat: torch.Tensor) -> None:
    """Stops parameters whose dtype or device was changed after they were cut."""
    now, then = (f"{t.dtype} on {t.device}" for t in (parameter, flat))
    if now != then:
        raise CommError(
            f"an update in {then}",
            f"a parameter of shape {tuple(parameter.shape)} that is {now}",
            "cast or move the module first, and make the sharded optimizer of it then",
        )


def refuse_thawed(asked: str, frozen: Iterable[torch.Tensor]) -> None:
    """Stops a step while parameters that were frozen when they were given have gradients."""
    for parameter in frozen:
        if parameter.grad is not None:
            raise CommError(
                asked,
                f"a gradient of shape {tuple(parameter.shape)} for a parameter that was frozen "
                "when it was given",
                "no rank has a shard of it: make the optimizer again after a change of what is "
                "trained",
            )


def refuse_zeros(name: str, can: bool) -> None:
    """Stops `set_to_none=False` where no gradient and zeros are not the same."""
    if not can:
        raise CommError(
            f"{name}.zero_grad(set_to_none=False) with find_unused_parameters=True",
            "gradients that the step has used up, where zeros are to stay",
            "an optimizer moves a parameter whose gradient is zero by its momentum: call "
            "zero_grad(), which leaves none",
        )


def refuse_scaled_rows(asked: str, written: Sequence[nn.Parameter]) -> None:
    """Stops embeddings that scale rows of their weight down in the forward.

    An optimizer is not told of modules: Python's collector knows them. It takes some milliseconds,
    so it is asked only where somebody has written to a parameter before the first step.

    Args:
        asked: the first line of the error.
        written: those parameters.

    Raises:
        CommError: one is the weight of an embedding with `max_norm`.
    """
    if written:
        of = {id(p) for p in written}
        kinds = (nn.Embedding, nn.EmbeddingBag)
        for table in [m for m in gc.get_objects() if issubclass(type(m), kinds)]:
            if id(table.weight) in of:
                refuse_max_norm(asked, table)


def refuse_ties(asked: str, parameters: Iterable[torch.Tensor]) -> None:
    """Stops parameters that lie in the memory of others, which stay there when they are moved.

    Others are parameters too, or any module's buffers. An optimizer is not told of modules: where
    somebody holds the memory of a parameter beside it, Python's collector knows who.

    Args:
        asked: the first line of the error.
        parameters: that are to be moved.

    Raises:
        CommError: naming both.
    """
    held = {p: p.untyped_storage() for p in parameters if p.layout is torch.strided}
    alone = 2  # the tensor, and the object that was just made for its storage
    where = {s._cdata for s in held.values() if torch._C._storage_Use_Count(s._cdata) > alone}
    tied = [p for p, storage in held.items() if storage._cdata in where]
    if tied:
        given = {f"the parameter {n} of shape {tuple(p.shape)}": p for n, p in enumerate(tied)}
        refuse_shared_memory(asked, {**_in_modules(where), **given})


def _in_modules(where: set[int]) -> dict[str, torch.Tensor]:
    """The parameters and buffers of all modules that lie in some storages, by name."""
    modules = [m for m in gc.get_objects() if issubclass(type(m), nn.Module)]
    found = [
        (f"{name} of a {type(module).__name__}", tensor)
        for module in modules
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]
        if tensor is not None
        and tensor.layout is torch.strided
        and tensor.untyped_storage()._cdata in where
    ]
    return {f"{name} (number {n} here)": tensor for n, (name, tensor) in enumerate(found)}


def refuse_other_shard(state: Mapping[str, Any], group: Group) -> None:
    """Stops a rank from loading the state of another rank, or of another number of ranks."""
    if not {"inner", "index", "size"} <= state.keys():
        raise CommError(
            f"optimizer state for index {group.index} of {group.size}",
            f"a state with {', '.join(map(str, state))}, which a sharded optimizer has not saved",
            "it is of whole parameters: save_training and resume_training cut it again",
        )
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
    frozen = sum(not p.requires_grad for p in missing)
    why = "others may have one: freeze what is never used, or pass find_unused_parameters=True"
    if frozen:
        why = (
            f"{frozen} were frozen since it was made: make it again after a change of what is "
            "trained, or pass find_unused_parameters=True"
        )
    return CommError(
        f"{name} with a gradient for each of {len(trained)} parameters",
        f"none for {len(missing)} of them on rank {rank}, of shapes {shapes}"
        + (", ..." if len(missing) > 3 else ""),
        why,
    )


def refuse_assigned(trained: Iterable[nn.Parameter], rank: int) -> None:
    """Stops a step of Zero2 while parameters have gradients: it has taken those of all backwards.

    Raises:
        CommError: one has a gradient, which would be left out.
    """
    for parameter in trained:
        if parameter.grad is not None:
            raise CommError(
                "a step of Zero2",
                f"a gradient of shape {tuple(parameter.shape)} on rank {rank} that no backward has "
                "given it",
                "it was assigned, was there before, or a hook steps in the backward: call "
                "backward(), and step after it, or use Zero1, which takes it in the step",
            )


def taken_gradient(parameter: nn.Parameter, rank: int) -> CommError:
    """The error for a gradient that is not there any more when its hook is called."""
    return CommError(
        f"a gradient of shape {tuple(parameter.shape)} for Zero2",
        f"another hook has taken it away on rank {rank}",
        "two Zero2 of one model, or an update in the backward: build the model again as well, and "
        "step after the backward",
    )


def unfinished_backward(left: int, rank: int) -> CommError:
    """The error for what follows a backward that has raised: some gradients are averages."""
    return CommError(
        f"Zero2 after a backward that raised on rank {rank}",
        f"{left} buckets that it has not averaged, and others that it has",
        "call zero_grad of the Zero2 on every rank, and make the whole step again",
    )


def unfinished_step(name: str, rank: int) -> CommError:
    """The error for a step after one that raised between the update and the all-gather."""
    return CommError(
        f"{name}'s step after one that raised on rank {rank}",
        "a shard that may be half updated, and that other ranks have not got",
        "load parameters and state as they were before, into a new optimizer",
    )
