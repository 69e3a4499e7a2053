"""Point-to-point messages: send and receive, of which every collective is made.

Notebook: 00 Ranks and the ledger, 01 Collectives from scratch (all exercises).
Source: MPI's blocking and immediate sends; torch.distributed.P2POp for the pair.
Costs: S bytes for a message of S bytes, and one latency alpha; nothing else.
The production version puts many messages in one NCCL group call, so that they cannot deadlock.

Peers are named by their *index in the group*, as everywhere in this course. Messages between GPUs
go through the host (see `carry`), and are booked as such.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from course_lib.comm.booking import book
from course_lib.comm.carry import HOST, is_plain, on_host, plain, wire_view
from course_lib.comm.errors import CommError
from course_lib.comm.group import Group
from course_lib.comm.work import Work
from course_lib.trace import Event


def isend(
    tensor: torch.Tensor, to: int, group: Group, *, step: int = -1, chunk: int = -1, tag: int = 0
) -> Work:
    """Starts to send a tensor to one member; the tensor must stay as it is until `wait`.

    Args:
        tensor: any shape and dtype; sent as one block of bytes, so a copy is made if it is not
            contiguous.
        to: index of the receiver in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.
        tag: messages of one pair with different tags pass each other by.

    Returns:
        The work to wait for.

    Raises:
        CommError: `to` is not another member of the group.
    """
    data = wire_view(plain(_from_host(tensor)))
    event = _book("send", tensor, _peer(to, group, "send to"), group, step, chunk, tag)
    return Work(group.transport.send(data, to, event, tag), group, event)


def irecv(
    tensor: torch.Tensor,
    source: int,
    group: Group,
    *,
    step: int = -1,
    chunk: int = -1,
    tag: int = 0,
) -> Work:
    """Starts to receive into `tensor`; it holds the message after `wait`.

    Args:
        tensor: filled in place; as many bytes as the sender sends, in its dtype or as uint8.
        source: index of the sender in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.
        tag: that of the message, as in `isend`.

    Returns:
        The work to wait for.

    Raises:
        CommError: `source` is not another member of the group.
    """
    event = _book("recv", tensor, _peer(source, group, "receive from"), group, step, chunk, tag)
    if is_plain(tensor) and on_host(tensor):
        return Work(group.transport.recv(wire_view(tensor), source, event, tag), group, event)
    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, device=HOST)
    work = group.transport.recv(wire_view(buffer), source, event, tag)

    def finish() -> None:
        tensor.copy_(buffer)

    return Work(work, group, event, finish)


def send(tensor: torch.Tensor, to: int, group: Group, **note: int) -> None:
    """Sends a tensor and returns once it may be changed again (see `isend`).

    A large message waits for its receiver: if all ranks send first, none receives.
    """
    isend(tensor, to, group, **note).wait()


def recv(tensor: torch.Tensor, source: int, group: Group, **note: int) -> None:
    """Receives into `tensor` and returns once it is there (see `irecv`)."""
    irecv(tensor, source, group, **note).wait()


def exchange(
    outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int, group: Group, **note: int
) -> None:
    """Sends and receives at the same time, and returns when both are done.

    This is the safe step of a ring: both messages are under way before either rank waits.
    """
    receiving = irecv(incoming, source, group, **note)
    sending = isend(outgoing, to, group, **note)
    receiving.wait()
    sending.wait()


class Stream:
    """One message that goes in pieces, so that the first can be used while the last still travels.

    Sender and receiver cut it in the same way. It is booked as one message, from its first piece to
    its last, and talks to the transport directly: a piece costs about 10 microseconds less than a
    message of its own, which counts when many are under way.

    Args:
        op: `send` or `recv`.
        tensor: the whole; its bytes are the message's.
        peer: index of the other end in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.
        tag: of its pieces, as in `isend`.

    Raises:
        CommError: `peer` is not another member of the group.
    """

    def __init__(
        self,
        op: str,
        tensor: torch.Tensor,
        peer: int,
        group: Group,
        step: int = -1,
        chunk: int = -1,
        tag: int = 0,
    ) -> None:
        self._entry = (op, tensor, _peer(peer, group, op), group, step, chunk, tag)
        self._start = group.transport.send if op == "send" else group.transport.recv
        self._peer, self._tag, self._ledger = peer, tag, group.ledger
        self._left = tensor.nbytes
        self._under_way: deque[tuple[Any, torch.Tensor, torch.Tensor]] = deque()
        self._event: Event | None = None

    def post(self, piece: torch.Tensor) -> None:
        """Starts the next piece: sends it, or receives into it. It must be contiguous."""
        data = piece if on_host(piece) else self._on_host(piece)
        handle = self._start(wire_view(data), self._peer, self._event, self._tag)
        self._under_way.append((handle, data, piece))
        if self._event is None:  # booked while the piece travels
            self._event = _book(*self._entry)

    def wait(self) -> None:
        """Waits for the oldest piece under way; the message ends with its last one."""
        handle, data, piece = self._under_way.popleft()
        handle.wait()
        if data is not piece and self._entry[0] == "recv":
            piece.copy_(data)
        self._left -= piece.nbytes
        if not self._left and self._event is not None:
            self._ledger.finish(self._event)

    def _on_host(self, piece: torch.Tensor) -> torch.Tensor:
        if self._entry[0] == "send":
            return piece.to(HOST)
        return torch.empty(piece.shape, dtype=piece.dtype, device=HOST)

    def wait_all(self) -> None:
        """Waits for every piece under way."""
        while self._under_way:
            self.wait()


def _from_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if on_host(tensor) else tensor.to(HOST)


def _peer(index: int, group: Group, asked: str) -> int:
    """The global rank of a member other than this one."""
    group.check_index(index, asked + " index")
    if index == group.index:
        raise CommError(
            f"{asked} index {index}", f"{group}", "a rank needs no message to reach itself"
        )
    return group.ranks[index]


def _book(
    op: str, tensor: torch.Tensor, peer: int, group: Group, step: int, chunk: int, tag: int
) -> Event:
    count = tensor.numel() * tensor.element_size()
    return book(
        op,
        tensor,
        group,
        payload=count,
        peer=peer,
        step=step,
        chunk=chunk,
        tag=tag,
        by_host=not on_host(tensor),
        sent=count if op == "send" else 0,
        received=count if op == "recv" else 0,
    )
