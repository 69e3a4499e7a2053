"""The backend's own collectives, each booked in the ledger with its bytes and times.

Notebook: 00 Ranks and the ledger; every later lesson calls these.
Source: torch.distributed, whose argument order is kept (output first); MPI for the words.
Costs: bytes on the wire as in `trace.wire`, for the bandwidth-optimal algorithm. gloo's own
reduce-scatter really moves twice that: the ledger books the formula, and notebook 01 measures the
difference.
The production version runs on its own CUDA stream and may be fused with its neighbours.

Every call writes into given buffers and returns a Work: already waited for, unless `async_op`.
Roots are named by their index in the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from course_lib.comm.booking import book
from course_lib.comm.carry import MOVED_AS, by_host, carried, place_for, wire_view
from course_lib.comm.checks import check_parts, check_reduction, check_rows, counted_rows
from course_lib.comm.group import Group
from course_lib.comm.work import Work
from course_lib.trace import Event, wire_bytes

# What the transport reduces with; gloo has no average, so the sum is divided at the end.
REDUCTIONS = {"sum": "sum", "avg": "sum", "max": "max", "min": "min", "product": "product"}


def all_reduce(
    tensor: torch.Tensor, group: Group, op: str = "sum", *, async_op: bool = False
) -> Work:
    """Reduces a tensor over the group, in place; every member ends with the result.

    Args:
        tensor: same shape and dtype on every member.
        group: the group.
        op: `sum`, `avg`, `max`, `min` or `product`.
        async_op: return at once; the tensor holds the result after the Work's `wait`.

    Returns:
        The work; 2(N-1)/N·S bytes sent by each rank.

    Raises:
        CommError: unknown `op`, an average of integers, or a dtype that cannot be reduced.
    """
    reduction = _reduction(tensor, op, "all_reduce")
    data = carried(tensor, group)
    event = _book("all_reduce", tensor, group, payload=tensor.nbytes, reduction=op)
    handle = group.transport.collective("all_reduce", data, data, reduction=reduction, event=event)

    finish = partial(_finish, tensor, data, group.size if op == "avg" else 1)
    return _result(handle, data, group, event, async_op, finish)


def reduce_scatter(
    output: torch.Tensor,
    input: torch.Tensor,
    group: Group,
    op: str = "sum",
    *,
    async_op: bool = False,
) -> Work:
    """Reduces `input` over the group; member i ends with part i of the result.

    Args:
        output: this rank's part, 1/N of the input's elements.
        input: same shape on every member; dim 0 is cut into N equal parts.
        group: the group.
        op: as in `all_reduce`.
        async_op: return at once.

    Returns:
        The work; (N-1)/N·S bytes sent by each rank, S the bytes of `input`.

    Raises:
        CommError: the sizes do not fit, or `op` does not.
    """
    reduction = _reduction(input, op, "reduce_scatter")
    check_parts(output, input, group, "reduce_scatter")
    event = _book("reduce_scatter", input, group, output, payload=input.nbytes, reduction=op)
    data = place_for(output, group)
    whole = carried(input, group).view(-1)
    handle = group.transport.collective(
        "reduce_scatter", data.view(-1), whole, reduction=reduction, event=event
    )

    finish = partial(_finish, output, data, group.size if op == "avg" else 1)
    return _result(handle, data, group, event, async_op, finish)


def all_gather(
    output: torch.Tensor, input: torch.Tensor, group: Group, *, async_op: bool = False
) -> Work:
    """Collects every member's `input`; all end with all of them, in order, along dim 0.

    Args:
        output: N times the input's elements.
        input: this rank's part, same shape on every member.
        group: the group.
        async_op: return at once.

    Returns:
        The work; (N-1)/N·S bytes sent by each rank, S the bytes of `output`.

    Raises:
        CommError: the sizes do not fit.
    """
    check_parts(input, output, group, "all_gather")
    event = _book("all_gather", input, group, output, payload=output.nbytes)
    data = place_for(output, group)
    part = wire_view(carried(input, group)).view(-1)
    handle = group.transport.collective("all_gather", wire_view(data).view(-1), part, event=event)
    finish = None if data is output else partial(_copy, output, data)
    return _result(handle, data, group, event, async_op, finish)


def all_to_all(
    output: torch.Tensor,
    input: torch.Tensor,
    group: Group,
    output_sizes: Sequence[int] | None = None,
    input_sizes: Sequence[int] | None = None,
    *,
    async_op: bool = False,
) -> Work:
    """Sends part j of `input` to member j; part i of `output` comes from member i.

    Args:
        output: rows received from all members, in order, along dim 0.
        input: rows for all members, in order, along dim 0.
        group: the group.
        output_sizes: rows from each member; equal parts if None.
        input_sizes: rows for each member; equal parts if None. Zero is allowed.
        async_op: return at once.

    Returns:
        The work; every row that goes to another rank is sent once.

    Raises:
        CommError: the sizes do not add up to the tensors' rows, or rows differ in what they are.
    """
    check_rows(output, input, group)
    given = counted_rows(input, input_sizes, group, "all_to_all input")
    taken = counted_rows(output, output_sizes, group, "all_to_all output")
    event = _book("all_to_all", input, group, output, payload=input.nbytes)
    row = math.prod(input.shape[1:]) * input.element_size()  # also where this rank sends none
    event.sent = (sum(given) - given[group.index]) * row
    event.received = (sum(taken) - taken[group.index]) * row
    data = place_for(output, group)
    given_as, taken_as = wire_view(carried(input, group)), wire_view(data)
    handle = group.transport.collective(
        "all_to_all", taken_as, given_as, sizes=(taken, given), event=event
    )
    finish = None if data is output else partial(_copy, output, data)
    return _result(handle, data, group, event, async_op, finish)


def broadcast(tensor: torch.Tensor, source: int, group: Group, *, async_op: bool = False) -> Work:
    """Copies one member's tensor to all, in place.

    Args:
        tensor: same shape and dtype on every member.
        source: index in the group of the member that has it.
        group: the group.
        async_op: return at once.

    Returns:
        The work; every other member receives S bytes.

    Raises:
        CommError: `source` is not an index of the group.
    """
    group.check_index(source, "broadcast from index")
    data = carried(tensor, group)
    event = _book("broadcast", tensor, group, payload=tensor.nbytes, root=source)
    wire = wire_view(data)
    handle = group.transport.collective("broadcast", wire, wire, root=source, event=event)
    finish = None if data is tensor else partial(_copy, tensor, data)
    return _result(handle, data, group, event, async_op, finish)


def reduce(
    tensor: torch.Tensor, target: int, group: Group, op: str = "sum", *, async_op: bool = False
) -> Work:
    """Reduces a tensor to one member, in place; the others' tensors are undefined afterwards.

    Args:
        tensor: same shape and dtype on every member.
        target: index in the group of the member that gets the result.
        group: the group.
        op: as in `all_reduce`.
        async_op: return at once.

    Returns:
        The work; every member but the target sends S bytes.

    Raises:
        CommError: `target` is not an index of the group, or `op` does not fit.
    """
    reduction = _reduction(tensor, op, "reduce")
    group.check_index(target, "reduce to index")
    data = carried(tensor, group)
    event = _book("reduce", tensor, group, payload=tensor.nbytes, root=target, reduction=op)
    handle = group.transport.collective(
        "reduce", data, data, reduction=reduction, root=target, event=event
    )

    parts = group.size if op == "avg" and group.index == target else 1
    finish = partial(_finish, tensor, data, parts)
    return _result(handle, data, group, event, async_op, finish)


def barrier(group: Group) -> None:
    """Returns on every member once all members have called it. No bytes are booked."""
    event = group.book("barrier", payload=0)
    event.waited = event.begin
    nothing = torch.empty(0)
    group.transport.collective("barrier", nothing, nothing, event=event).wait()
    group.ledger.finish(event)


# --- shared by the calls above -------------------------------------------------------------------
def _copy(target: torch.Tensor, data: torch.Tensor) -> None:
    target.copy_(data)


def _finish(target: torch.Tensor, data: torch.Tensor, parts: int) -> None:
    """Makes the mean of a sum, and puts it where it belongs."""
    if parts > 1:
        data.div_(parts)
    if data is not target:
        target.copy_(data)


def _book(
    op: str,
    tensor: torch.Tensor,
    group: Group,
    output: torch.Tensor | None = None,
    *,
    payload: int,
    root: int | None = None,
    reduction: str = "",
) -> Event:
    """Opens the event of a collective, with the bytes that its formula says."""
    index = group.index if root is None else (group.index - root) % group.size
    sent, received = wire_bytes(op, payload, group.size, index, tensor.element_size())
    return book(
        op,
        tensor,
        group,
        payload=payload,
        reduction=reduction,
        sent=sent,
        received=received,
        peer=-1 if root is None else group.ranks[root],
        by_host=by_host(tensor, group),
        tensors=(tensor, tensor if output is None else output),
    )


def _result(
    handle: Any,
    data: torch.Tensor,
    group: Group,
    event: Event,
    async_op: bool,
    finish: Callable[[], None] | None,
) -> Work:
    work = Work(handle, group, event, finish, timed=async_op, data=data)
    if not async_op:
        work.wait()
    return work


def _reduction(tensor: torch.Tensor, op: str, asked: str) -> str:
    """What the transport is asked to reduce with."""
    check_reduction(tensor, op, asked, REDUCTIONS, MOVED_AS)
    return REDUCTIONS[op]
