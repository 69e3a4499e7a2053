"""What every collective built from messages shares: its entry in the ledger, its row, its sum.

Notebook: 01 Collectives from scratch (all exercises).
Source: MPICH's collectives, which are written over point-to-point messages in the same way.
Costs: nothing on the wire; a tensor that is not contiguous is copied once to a row and back.
The production version (NCCL) keeps its channels and buffers from one call to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import checks
from course_lib.comm.booking import book
from course_lib.comm.carry import is_plain, plain
from course_lib.comm.group import Group
from course_lib.comm.messages import Stream, irecv, isend

REDUCTIONS = ("sum", "avg", "max")
NOT_ADDED = (torch.uint16, torch.uint32, torch.uint64)  # torch knows no sum of them
PIECE_BYTES = 1 << 20  # a message is cut into pieces of this size, added while the next one travels
AHEAD = 2  # receives posted ahead of the one that is waited for, each with a buffer of a piece


@contextmanager
def built(
    op: str,
    algorithm: str,
    tensor: torch.Tensor,
    group: Group,
    root: int | None = None,
    reduction: str = "",
) -> Iterator[torch.Tensor]:
    """Books a collective: the messages sent in this block are its parts, their bytes its bytes.

    Args:
        op: the collective, in torch.distributed's words.
        algorithm: how it is built, as the ledger names it.
        tensor: S of the formulas: its bytes are the payload.
        group: the group.
        root: index of the source or destination, if there is one.
        reduction: `sum`, `avg` or `max`, if it reduces.

    Yields:
        The tensor as one row of elements, to be changed in place (see `as_row`).
    """
    peer = -1 if root is None else group.ranks[root]
    event = book(
        op,
        tensor,
        group,
        payload=tensor.nbytes,
        algorithm=algorithm,
        reduction=reduction,
        peer=peer,
    )
    with group.ledger.within(event), as_row(tensor, group) as row:
        yield row


@contextmanager
def as_row(tensor: torch.Tensor, group: Group) -> Iterator[torch.Tensor]:
    """The tensor as one row of elements, to be changed in place.

    A tensor that is not contiguous is copied, held as a communication buffer, and written back at
    the end of the block.
    """
    tensor = tensor.detach()
    if is_plain(tensor):
        yield tensor.view(-1)
        return
    with group.ledger.hold("communication buffers", tensor.nbytes):
        row = plain(tensor).view(-1)
        yield row
        tensor.copy_(row.view(tensor.shape))


def check_reduction(tensor: torch.Tensor, op: str, asked: str) -> None:
    """Refuses what cannot be reduced.

    Raises:
        CommError: unknown `op`, an average of integers, or numbers that torch cannot add up.
    """
    checks.check_reduction(tensor, op, asked, REDUCTIONS, NOT_ADDED)


def combine(into: torch.Tensor, other: torch.Tensor, op: str) -> None:
    """One step of a reduction, in place. An average is a sum until `finish_average`."""
    if op == "max":
        torch.maximum(into, other, out=into)
    else:
        into.add_(other)


def finish_average(row: torch.Tensor, op: str, count: int) -> None:
    """Divides a sum over `count` ranks once, at the end, where `op` is `avg`."""
    if op == "avg":
        row.div_(count)


def swap(
    outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int, group: Group, **note: int
) -> None:
    """`messages.exchange` without empty messages; both ends know which are empty.

    Sends come first, here and below: gloo then moves the data in its own thread once the receiver
    is ready, and does not compete with this thread for the connection's lock.
    """
    sending = isend(outgoing, to, group, **note) if outgoing.numel() else None
    receiving = irecv(incoming, source, group, **note) if incoming.numel() else None
    for work in (receiving, sending):
        if work is not None:
            work.wait()


def cut(row: torch.Tensor) -> list[torch.Tensor]:
    """The pieces in which a row travels; none if it is empty, one on a simulated cluster."""
    if row.nbytes <= PIECE_BYTES or row.is_meta:  # without data, a hundred pieces teach nothing
        return [row] if row.numel() else []
    most = PIECE_BYTES // row.element_size()
    return list(row.split(most))


def swap_and_combine(
    outgoing: torch.Tensor, own: torch.Tensor, peer: int, group: Group, op: str, **note: int
) -> None:
    """Sends `outgoing` to a partner, and combines `own` with what the partner sends, in place.

    Args:
        outgoing: what the partner gets: `own` itself, or another part of the same row.
        own: as many elements as the partner sends.
        peer: index of the partner.
        group: the group.
        op: the reduction.
        note: `step` and `chunk`, for the ledger.
    """
    going = Stream("send", outgoing, peer, group, **note)
    coming = Stream("recv", own, peer, group, **note)
    pieces = cut(own)
    buffers = [torch.empty_like(piece) for piece in pieces[:AHEAD]]
    with group.ledger.hold("communication buffers", sum(buffer.nbytes for buffer in buffers)):
        for piece in cut(outgoing):
            going.post(piece)
        for buffer in buffers:
            coming.post(buffer)
        for number, piece in enumerate(pieces):
            coming.wait()
            if outgoing is own:  # the piece must have left before it changes
                going.wait()
            buffer = buffers[number % AHEAD]
            combine(piece, buffer[: piece.numel()], op)
            if number + AHEAD < len(pieces):
                coming.post(buffer[: pieces[number + AHEAD].numel()])
        going.wait_all()
