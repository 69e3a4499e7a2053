"""Parameters and buffers that are different tensors in the same memory: the wrappers part them.

Notebook: 04 ZeRO.
Source: the documentation of torch's FSDP, which keeps ties of one object under several names only.
Costs a look at the addresses; nothing is compared.
The production version (FSDP2) does not look, and trains two copies.

A parameter that is one object under two names is moved once, and stays one. Two parameters, or a
parameter and a buffer, that only lie in the same memory are moved to two places.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from course_lib.comm import CommError


def refuse_shared_memory(asked: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Stops a module of whose tensors one lies in the memory of another parameter.

    Args:
        asked: the first line of the error.
        tensors: parameters that are to be moved, and all that may lie in their memory, by name;
            one object under several names is one tensor.

    Raises:
        CommError: two of them overlap, and one is a parameter.
    """
    names: dict[torch.Tensor, str] = {}
    for name, tensor in tensors.items():
        names.setdefault(tensor, name)
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in names:
        if tensor.numel() and tensor.device.type != "meta" and not tensor.is_sparse:
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for alike in by_storage.values():
        alike.sort(key=lambda t: _range(t).start)
        for number, tensor in enumerate(alike):
            for other in alike[number + 1 :]:
                if _range(other).start >= _range(tensor).stop:
                    break
                if any(isinstance(t, nn.Parameter) for t in (tensor, other)):
                    _refuse_overlap(asked, tensor, other, names)


def same_place(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors begin at the same element of one storage, also where that has no data."""
    storages = (one.untyped_storage()._cdata, other.untyped_storage()._cdata)
    return storages[0] == storages[1] and one.storage_offset() == other.storage_offset()


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """A view with each element once of a tensor that `expand` has made; any other as it is.

    Torch does not write to one that shows an element several times.
    """
    once = [slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride()]
    return tensor.detach()[tuple(once)] if slice(0, 1) in once else tensor.detach()


def _range(tensor: torch.Tensor) -> range:
    """The bytes of its storage between a tensor's first element and its last."""
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset() * tensor.element_size()
    return range(start, start + (last + 1) * tensor.element_size())


def _refuse_overlap(
    asked: str, one: torch.Tensor, other: torch.Tensor, names: Mapping[torch.Tensor, str]
) -> None:
    gaps = one.numel() * one.element_size() < len(_range(one))
    if gaps and not torch.isin(_places(one), _places(other)).any():
        return
    raise CommError(
        asked,
        f"{names[one]} and {names[other]}, two tensors in the same memory",
        "they would be parted: give both names to one Parameter, or compute one from the other",
    )


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Where in its storage a tensor's elements begin, in bytes."""
    places = torch.tensor(tensor.storage_offset())
    for count, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places[..., None] + torch.arange(count) * stride
    return places.reshape(-1) * tensor.element_size()
