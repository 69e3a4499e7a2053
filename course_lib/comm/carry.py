"""How the bytes of a tensor leave a rank: over the GPU's own links, or through the host.

Notebook: 00 Ranks and the ledger; every call of comm passes here.
Source: torch.distributed's table of what each backend can do on each device.
Costs: nothing for tensors on the CPU, and on GPUs where NCCL carries them; else a copy to the host
and one back, and the speed of the host's network.
The production version (NCCL) takes the bytes from the GPU in every case, and sends messages in
batches.

    tensor     group of GPUs (`cpu:gloo,cuda:nccl`)            group without NCCL (`gloo`)
    on a GPU   collectives by NCCL, messages by the host       by the host
    on the CPU by gloo                                         by gloo

Messages go through the host because programs here post them in any order: a receive long before its
send, or a send before its receive. NCCL carries out a GPU's messages one after another, so two
ranks that both send first, or both receive first, would wait forever. gloo keeps messages apart.
"""

from __future__ import annotations

import torch

from course_lib.comm.group import Group

HOST = torch.device("cpu")


def on_host(tensor: torch.Tensor) -> bool:
    """Whether messages take it from where it is: it is on the host, or has no data at all."""
    return tensor.device.type in ("cpu", "meta")


def by_host(tensor: torch.Tensor, group: Group) -> bool:
    """Whether a collective on this tensor goes through the host's memory."""
    return not on_host(tensor) and not group.has_nccl


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its values lie in memory in their order, and not as conjugates or negatives."""
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values so that `is_plain`: the tensor itself, or a copy."""
    return tensor.contiguous().resolve_conj().resolve_neg()


def carried(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The tensor as a collective of this group's can move it: itself, or a copy of it.

    Args:
        tensor: any.
        group: whose backend moves it.

    Returns:
        A plain tensor of the same shape and dtype, on the host if the group has only gloo.
    """
    return plain(tensor.to(HOST) if by_host(tensor, group) else tensor)


def place_for(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Where a collective may write the new values of `tensor`: itself, or a buffer like it."""
    if is_plain(tensor) and not by_host(tensor, group):
        return tensor
    device = HOST if by_host(tensor, group) else tensor.device
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


# gloo moves no 8-bit floats and few integers: bytes travel as another dtype of the same size.
MOVED_AS = {
    torch.int16: torch.float16,
    torch.uint16: torch.float16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def wire_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes in a dtype that every backend can move, where nothing is computed."""
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        return tensor.view(torch.uint8)
    return tensor.view(MOVED_AS.get(tensor.dtype, tensor.dtype))
