"""How a call enters the ledger: whose it is, on which tensor, and how many bytes it is about.

Notebook: 00 Ranks and the ledger; every later lesson reads these events.
Source: NCCL's flight recorder keeps the same of each call: group, operation, shape and dtype.
Costs nothing on the wire.
The production version records the stream and the stack of the caller, too.
"""

from __future__ import annotations

from typing import Any

import torch

from course_lib.comm.group import Group
from course_lib.trace import Event


def book(
    op: str,
    tensor: torch.Tensor,
    group: Group,
    *,
    payload: int,
    tensors: tuple[Any, Any] | None = None,
    **fields: Any,
) -> Event:
    """Opens an event of this group in its ledger.

    Args:
        op: the call, in torch.distributed's words.
        tensor: the event has its shape and dtype, and the bytes of one element.
        group: who calls.
        payload: S of the formulas, in bytes.
        tensors: what the call reads, and where its result will be; both are `tensor` if None.
        fields: further fields of `Event`: bytes sent and received, peer, algorithm.
    """
    return group.book(
        op,
        payload=payload,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        item=tensor.element_size(),
        tensors=tensors or (tensor, tensor),
        **fields,
    )
