"""Point-to-point messages: the two words, send and receive, that every collective is made of.

Notebook: 00 Ranks and the ledger, 01 Collectives from scratch (all exercises).
Source: MPI's blocking and immediate sends; torch.distributed.P2POp for the pair.
Costs: S bytes for a message of S bytes, and one latency alpha; nothing else.
The production version puts many messages in one NCCL group call, so that they cannot deadlock.

Peers are named by their *index in the group*, as everywhere in this course.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from course_lib.comm.errors import CommError
from course_lib.comm.group import Group
from course_lib.trace import Event


class Work:
    """A call under way. Its buffers may be touched again only after `wait`.

    Args:
        handle: torch's work, or None if the call is already done.
        group: whose ledger the call is booked in.
        event: its entry there.
        finish: what is left to do once the data are here (scale an average, copy back).
        timed: note when the data are here, also if nobody waits yet; on CPU alone, where a call
            has an end that this process sees.
    """

    def __init__(
        self,
        handle: Any,
        group: Group,
        event: Event,
        finish: Callable[[], None] | None = None,
        *,
        timed: bool = False,
    ) -> None:
        self._handle = handle
        self._group = group
        self._finish = finish
        self.event = event
        self._arrived = arrived = []  # type: list[float]
        if timed and group.device.type == "cpu":
            # The callback holds the list and not this object, which holds the handle.
            with suppress(RuntimeError):  # gloo's reduce-scatter has no future
                handle.get_future().add_done_callback(lambda _: arrived.append(time.monotonic()))

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._handle is None or bool(self._handle.is_completed())

    def wait(self) -> None:
        """Returns once the buffers hold the result. A second call does nothing."""
        if self._handle is not None:
            self.event.waited = time.monotonic()
            self._handle.wait()
            self._handle = None
        if self._finish is not None:
            self._finish()
            self._finish = None
        self._group.ledger.finish(self.event, *self._arrived)


def isend(tensor: torch.Tensor, to: int, group: Group, *, step: int = -1, chunk: int = -1) -> Work:
    """Starts to send a tensor to one member; the tensor must stay as it is until `wait`.

    Args:
        tensor: any shape and dtype; sent as one block of bytes, so a copy is made if it is not
            contiguous.
        to: index of the receiver in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.

    Returns:
        The work to wait for.

    Raises:
        CommError: `to` is not another member of the group.
    """
    data = wire_view(tensor.contiguous())
    event = _book("send", tensor, _peer(to, group, "send to"), group, step, chunk)
    return Work(dist.isend(data, event.peer, group.handle), group, event)


def irecv(
    tensor: torch.Tensor, source: int, group: Group, *, step: int = -1, chunk: int = -1
) -> Work:
    """Starts to receive into `tensor`; it holds the message after `wait`.

    Args:
        tensor: filled in place; as many bytes as the sender sends.
        source: index of the sender in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.

    Returns:
        The work to wait for.

    Raises:
        CommError: `source` is not another member of the group.
    """
    event = _book("recv", tensor, _peer(source, group, "receive from"), group, step, chunk)
    if tensor.is_contiguous():
        return Work(dist.irecv(wire_view(tensor), event.peer, group.handle), group, event)
    buffer = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    work = dist.irecv(wire_view(buffer), event.peer, group.handle)

    def finish() -> None:
        tensor.copy_(buffer)

    return Work(work, group, event, finish)


def send(tensor: torch.Tensor, to: int, group: Group, **note: int) -> None:
    """Sends a tensor and returns once it may be changed again (see `isend`).

    A large message waits for its receiver: if everybody sends first, nobody receives.
    """
    isend(tensor, to, group, **note).wait()


def recv(tensor: torch.Tensor, source: int, group: Group, **note: int) -> None:
    """Receives into `tensor` and returns once it is there (see `irecv`)."""
    irecv(tensor, source, group, **note).wait()


def exchange(
    outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int, group: Group, **note: int
) -> None:
    """Sends and receives at the same time, and returns when both are done.

    This is the safe step of a ring: both messages are under way before anybody waits.
    """
    receiving = irecv(incoming, source, group, **note)
    sending = isend(outgoing, to, group, **note)
    receiving.wait()
    sending.wait()


class Stream:
    """One message that goes in pieces, so that the first can be used while the last still travels.

    Sender and receiver cut it in the same way. It is booked as one message, from its first piece to
    its last, and talks to the backend directly: a piece costs about 10 microseconds less than a
    message of its own, which counts when many are under way.

    Args:
        op: `send` or `recv`.
        tensor: the whole; its bytes are the message's.
        peer: index of the other end in `group`.
        group: the group.
        step: round of the algorithm that the message belongs to, for the ledger.
        chunk: chunk of the tensor that it carries, for the ledger.

    Raises:
        CommError: `peer` is not another member of the group.
    """

    def __init__(
        self, op: str, tensor: torch.Tensor, peer: int, group: Group,
        step: int = -1, chunk: int = -1,
    ) -> None:  # fmt: skip
        self._entry = (op, tensor, _peer(peer, group, op), group, step, chunk)
        self._start = group.handle.send if op == "send" else group.handle.recv
        self._peer, self._ledger = peer, group.ledger
        self._left = tensor.nbytes
        self._under_way: deque[tuple[Any, int]] = deque()
        self._event: Event | None = None

    def post(self, piece: torch.Tensor) -> None:
        """Starts the next piece: sends it, or receives into it. It must be contiguous."""
        self._under_way.append((self._start([wire_view(piece)], self._peer, 0), piece.nbytes))
        if self._event is None:  # booked while the piece travels
            self._event = _book(*self._entry)

    def wait(self) -> None:
        """Waits for the oldest piece under way; the message ends with its last one."""
        handle, count = self._under_way.popleft()
        handle.wait()
        self._left -= count
        if not self._left and self._event is not None:
            self._ledger.finish(self._event)

    def wait_all(self) -> None:
        """Waits for every piece under way."""
        while self._under_way:
            self.wait()


def wire_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes in a dtype that every backend can move: gloo refuses 8-bit floats."""
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        return tensor.view(torch.uint8)
    return tensor


def _peer(index: int, group: Group, asked: str) -> int:
    """The global rank of a member other than this one."""
    group.check_index(index, asked + " index")
    if index == group.index:
        raise CommError(
            f"{asked} index {index}", f"{group}", "a rank needs no message to reach itself"
        )
    return group.ranks[index]


def _book(op: str, tensor: torch.Tensor, peer: int, group: Group, step: int, chunk: int) -> Event:
    count = tensor.numel() * tensor.element_size()
    return group.ledger.begin(
        op, axis=group.axis, group=group.ranks, payload=count, peer=peer, step=step, chunk=chunk,
        sent=count if op == "send" else 0, received=count if op == "recv" else 0,
        shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."),
        item=tensor.element_size(),
    )  # fmt: skip
