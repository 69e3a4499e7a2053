"""All-to-all from messages: in step s each rank sends s places ahead and receives from s behind.

Notebook: 01 Collectives from scratch (all_to_all_v), 04 ZeRO (the reduce-scatter that runs beside
the backward), 12 Expert parallel (dispatch and combine).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), section 4.3 (pairwise exchange).
Costs: every byte that is not for oneself is sent once, in N-1 steps; (N-1)/N·S for equal parts.
The production version (NCCL) starts all messages at once, and stages them at the node's border.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm.algorithms.assembly import check_reduction, swap
from course_lib.comm.booking import book
from course_lib.comm.carry import by_host, carried, wire_view
from course_lib.comm.collectives import reduce_scatter
from course_lib.comm.errors import CommError
from course_lib.comm.group import Group
from course_lib.comm.work import Work
from course_lib.trace import Event, wire_bytes


def pairwise_all_to_all(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], group: Group
) -> None:
    """Sends `inputs[j]` to member j; `outputs[i]` comes from member i.

    Args:
        outputs: one tensor a member, filled in place; as large as what that member sends here.
        inputs: one tensor a member. Empty ones are allowed, and no message is sent for them.
        group: the group.

    Raises:
        CommError: there is not one tensor a member, or the tensors for oneself do not match.
    """
    _check(outputs, inputs, group)
    me, size = group.index, group.size
    with group.ledger.within(_book(outputs, inputs, group)):
        outputs[me].detach().copy_(inputs[me].detach())
        for step in range(1, size):
            to, source = (me + step) % size, (me - step) % size
            swap(inputs[to], to, outputs[source], source, group, step=step - 1, chunk=to)


def pairwise_reduce_scatter(
    output: torch.Tensor, input: torch.Tensor, group: Group, op: str = "sum"
) -> Work:
    """Begins a reduce-scatter that runs while this rank computes; member i gets part i.

    Each member sends part j to member j and adds what it gets, in the order of the indices. On GPUs
    this is the backend's reduce-scatter; gloo's own moves twice the bytes, and a ring of messages
    needs this rank's processor in every step.

    Args:
        output: 1/N of the input's elements, contiguous; undefined until `wait`.
        input: contiguous, the same shape on every member; must stay as it is until `wait`, but the
            caller need not keep it. Sums are computed in the dtype of `output`, which may be wider.
        group: the group.
        op: `sum` or `avg`.

    Returns:
        The work; (N-1)/N·S bytes sent by each rank, S the bytes of `input`. As many are held twice
        until `wait`: what is sent and what comes, without the own part, which does not travel.

    Raises:
        CommError: the sizes, the dtypes or `op` do not fit.
    """
    if input.device.type != "cpu" and input.dtype == output.dtype:
        return reduce_scatter(output, input, group, op, async_op=True)
    check_reduction(output, op, "pairwise_reduce_scatter")
    output, input = output.detach(), input.detach()
    fits = output.numel() * group.size == input.numel() and output.is_contiguous()
    if not (fits and torch.can_cast(input.dtype, output.dtype) and op in ("sum", "avg")):
        raise CommError(
            f"a reduce-scatter ({op}) over {group.size} members",
            f"input {tuple(input.shape)} of {input.dtype}, output {tuple(output.shape)} of "
            f"{output.dtype}, strides {output.stride()}, on rank {group.rank}",
            "the output is 1/N of the input, contiguous and of no lesser kind of numbers, and the "
            "operation is `sum` or `avg`",
        )
    sent, received = wire_bytes(
        "reduce_scatter", input.nbytes, group.size, group.index, input.element_size()
    )
    event = book(
        "reduce_scatter",
        input,
        group,
        payload=input.nbytes,
        algorithm="pairwise",
        reduction=op,
        sent=sent,
        received=received,
        by_host=by_host(input, group),
        tensors=(input, output),
    )
    me, rows = group.index, carried(input, group).view(group.size, -1)
    output.view(-1).copy_(rows[me])
    data = torch.cat([rows[:me], rows[me + 1 :]])
    parts = torch.empty_like(data)  # not `data` itself, which is under way to the others
    sizes = [int(member != me) for member in range(group.size)]
    handle = group.transport.collective(
        "all_to_all", wire_view(parts), wire_view(data), sizes=(sizes, sizes), event=event
    )

    def finish() -> None:
        here, came = output.view(-1), parts.to(output.device).unbind()
        in_order = [*came[:me], here, *came[me:]]
        total = in_order[0].to(output.dtype)
        for part in in_order[1:]:
            total += part
        here.copy_(total)
        if op == "avg":
            output.div_(group.size)

    return Work(handle, group, event, finish, timed=True, data=parts)


def _book(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], group: Group) -> Event:
    """Opens the event; its payload is all that this member has to give, its own part included."""
    payload = sum(part.nbytes for part in inputs)
    own, both = inputs[group.index], (inputs, outputs)
    return book("all_to_all", own, group, payload=payload, algorithm="pairwise", tensors=both)


def _check(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], group: Group) -> None:
    if not len(outputs) == len(inputs) == group.size:
        raise CommError(
            f"an all-to-all of {len(inputs)} inputs and {len(outputs)} outputs",
            f"{group}",
            f"there must be one of each for each of the {group.size} members",
        )
    mine, own = inputs[group.index], outputs[group.index]
    if mine.shape != own.shape or mine.dtype != own.dtype:
        raise CommError(
            f"an all-to-all in which rank {group.rank} keeps its part {group.index}",
            f"input {tuple(mine.shape)} {mine.dtype}, output {tuple(own.shape)} {own.dtype}",
            "what a member sends to itself must fit where it receives it",
        )
