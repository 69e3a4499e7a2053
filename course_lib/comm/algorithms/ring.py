"""Ring collectives: all members pass one chunk to the next at the same time, N-1 times.

Notebook: 01 Collectives from scratch (ring_reduce_scatter, ring_all_gather, ring_all_reduce).
Paper: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009), section 3.
Costs: (N-1)/N·S sent per rank by reduce-scatter and by all-gather, 2(N-1)/N·S by all-reduce, which
is both; N-1 steps each, so (N-1) latencies. Two pieces of 1 MiB are held as receive buffers.
The production version (NCCL) runs several rings at once and adds inside the receiving kernel.

Chunk c starts at member c + 1, goes round the ring, collects each member's summand on its way, and
is complete at its owner, member c. From there the all-gather sends it round once more. A chunk
travels in pieces, so that one piece is added while the next one is on the wire; the steps stay the
same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from course_lib.comm.algorithms.assembly import (
    AHEAD,
    built,
    check_reduction,
    combine,
    cut,
    finish_average,
)
from course_lib.comm.group import Group
from course_lib.comm.messages import Stream

# Members that call different collectives wait for each other, and the autopsy says so: a chunk that
# is to be kept is never added, and the other way round.
TAGS = {True: 2, False: 3}  # by whether a step reduces


class Step(NamedTuple):
    """What one member does in one step of the ring.

    Attributes:
        outgoing: the chunk it sends to the next member: the one that came in a step before.
        incoming: the chunk it receives from the previous member.
        reduces: whether it adds what comes in to its own (reduce-scatter) or keeps it (all-gather).
    """

    outgoing: int
    incoming: int
    reduces: bool


def reduce_scatter_steps(index: int, size: int) -> list[Step]:
    """The N-1 steps of one member, after which it owns chunk `index`."""
    return [
        Step((index - step - 1) % size, (index - step - 2) % size, True) for step in range(size - 1)
    ]


def all_gather_steps(index: int, size: int) -> list[Step]:
    """The N-1 steps of one member, which begins with chunk `index`."""
    return [
        Step((index - step) % size, (index - step - 1) % size, False) for step in range(size - 1)
    ]


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    """Reduces a tensor over the group; member i ends with chunk i of the result.

    Args:
        tensor: same shape and dtype on every member, any number of elements; cut into N chunks as
            `torch.Tensor.tensor_split` cuts its elements. In place: the other chunks are left with
            partial sums.
        group: the group.
        op: `sum`, `avg` or `max`.

    Returns:
        This member's chunk, one row; a view of `tensor` if that is contiguous. (N-1)/N·S bytes are
        sent by each rank.

    Raises:
        CommError: `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "ring_reduce_scatter")
    with built("reduce_scatter", "ring", tensor, group, reduction=op) as row:
        _go_round(row, reduce_scatter_steps(group.index, group.size), group, op)
        mine = row.tensor_split(group.size)[group.index]
        finish_average(mine, op, group.size)
    return mine


def ring_all_gather(tensor: torch.Tensor, group: Group) -> None:
    """Collects every member's chunk, in place; all end with the whole tensor.

    Args:
        tensor: same shape and dtype on every member; chunk i of member i is filled, as after
            `ring_reduce_scatter`, and the rest is overwritten. (N-1)/N·S bytes are sent by each.
        group: the group.
    """
    with built("all_gather", "ring", tensor, group) as row:
        _go_round(row, all_gather_steps(group.index, group.size), group)


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    """Reduces a tensor over the group, in place; every member ends with the same bits.

    Args:
        tensor: same shape and dtype on every member, any number of elements.
        group: the group.
        op: `sum`, `avg` or `max`. 2(N-1)/N·S bytes are sent by each rank, in 2(N-1) steps.

    Raises:
        CommError: `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "ring_all_reduce")
    index, size = group.index, group.size
    steps = reduce_scatter_steps(index, size) + all_gather_steps(index, size)
    with built("all_reduce", "ring", tensor, group, reduction=op) as row:
        _go_round(row, steps, group, op)
        finish_average(row, op, size)


class _Hop(NamedTuple):
    """One piece that comes in: the step it belongs to, and its place in the row."""

    step: int
    reduces: bool
    piece: torch.Tensor


def _go_round(row: torch.Tensor, steps: list[Step], group: Group, op: str = "sum") -> None:
    """Carries out the steps. Each piece goes on to the next member as soon as it is reduced.

    An all-gather may receive into a chunk whose send in the reduce-scatter nobody has waited for
    yet. That is safe: the complete chunk is computed from that message, and so cannot arrive before
    it.
    """
    if not steps:
        return
    chunks = row.tensor_split(group.size)
    hops = [
        _Hop(number, step.reduces, piece)
        for number, step in enumerate(steps)
        for piece in cut(chunks[step.incoming])
    ]
    going = [
        Stream("send", chunks[out], group.next, group, number, out, TAGS[reduces])
        for number, (out, _, reduces) in enumerate(steps)
    ]
    coming = [
        Stream("recv", chunks[into], group.previous, group, number, into, TAGS[reduces])
        for number, (_, into, reduces) in enumerate(steps)
    ]
    largest = max((hop.piece.numel() for hop in hops if hop.reduces), default=0)
    buffers = row.new_empty(AHEAD, largest)

    def place(number: int) -> torch.Tensor:
        """Where hop `number` arrives: in a buffer if it is to be added, else in the row itself."""
        hop = hops[number]
        return buffers[number % AHEAD, : hop.piece.numel()] if hop.reduces else hop.piece

    with group.ledger.hold("communication buffers", buffers.nbytes):
        for piece in cut(chunks[steps[0].outgoing]):
            going[0].post(piece)
        for number, hop in enumerate(hops[:AHEAD]):
            coming[hop.step].post(place(number))
        for number, hop in enumerate(hops):
            coming[hop.step].wait()
            if hop.reduces:
                combine(hop.piece, place(number), op)
            if hop.step + 1 < len(steps):
                going[hop.step + 1].post(hop.piece)
            if number + AHEAD < len(hops):
                coming[hops[number + AHEAD].step].post(place(number + AHEAD))
        for stream in going:
            stream.wait_all()
