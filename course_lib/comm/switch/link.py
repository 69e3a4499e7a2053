"""A rank's end of the line to the switch: posts calls, and waits for their ends.

Notebook: none of its own.
Source: MPI's request objects, with one thread at a time that reads for all.
Costs: one write for a call, one read for its end; no thread of its own.
The production version polls the network card.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch

from course_lib.comm.errors import CommError
from course_lib.comm.matching import Post
from course_lib.comm.switch.arena import FIRST, Arena
from course_lib.comm.switch.frames import Ask, End, Mark, ends_in, pack_ask, pack_mark
from course_lib.trace import Event, Ledger

CHANGED = (
    "what is being sent must not change before it has been waited for; where two messages under "
    "way share memory, use two buffers in turn"
)
MANY = 64  # calls under way from which on their ends are read before the next is posted


class Link:
    """The connection of one rank.

    Args:
        sock: to the switch, as an open file; it is closed with this object.
        arena: shared with the switch, as an open file.
        ledger: the rank's; the switch is told which of its events a call belongs to.
    """

    def __init__(self, sock: int, arena: int, ledger: Ledger) -> None:
        self.arena, self.ledger = Arena(arena), ledger
        self._sock = socket.socket(fileno=sock)
        self._inbox = bytearray()
        self._ended: dict[int, End] = {}
        self._under_way: dict[int, Call] = {}
        self._calls = 0
        self._held = bytearray()
        self._turn = threading.Condition()
        self._is_read = False
        self._threads = threading.active_count()

    def expect_threads(self) -> None:
        """Threads that run now never call: a wait counts as one of the whole rank's."""
        self._threads = threading.active_count()

    def post(
        self, post: Post, given: torch.Tensor, result: torch.Tensor | None, event: Event | None
    ) -> Call:
        """Starts a call.

        Args:
            post: what is asked for.
            given: what it gives: a contiguous tensor; it may be changed as soon as this returns.
            result: where the result goes; None if there is none, `given` if it is in place.
            event: the ledger's; None for the one that will be booked next.

        Raises:
            CommError: there is no room, or no switch any more.
        """
        if len(self._under_way) > MANY:
            self._read_what_is_there()
        with self._turn:
            call = Call(self, self._calls, given, result)
            takes = 0 if result is None else result.numel()
            known = len(self.ledger.events)
            number, line = (known, "") if event is None else (event.number, self._line_of(event))
            ask = Ask(post, call.gives, call.gets, takes, number, known, line)
            self._calls += 1
            self._under_way[call.number] = call
            self._held += pack_ask(ask)
            if post.op != "recv":
                self._flush(post.op)
        return call

    def mark(self, name: str) -> None:
        """Tells the switch of a moment, as the ledger names it."""
        with self._turn:
            self._held += pack_mark(Mark(name, len(self.ledger.events)))
            self._flush(name)

    def flush(self) -> None:
        """Tells the switch of the receives that it has not been told of.

        A receive alone frees only its sender: it travels with what the rank says next, which most
        often is the send of the same exchange.
        """
        with self._turn:
            self._flush("a receive")

    def _line_of(self, event: Event) -> str:
        return self.ledger.line_of(event) if event.parent < 0 else ""

    def _flush(self, what: str) -> None:
        frames, self._held = self._held, bytearray()
        try:
            if frames:
                self._sock.sendall(frames)
        except OSError:
            raise _lost(what) from None

    def wait(self, number: int, limit: float | None = None) -> End:
        """Waits for the end of a call.

        Raises:
            RuntimeError: it did not end within `limit` seconds.
            CommError: the switch is gone.
        """
        self.flush()
        deadline = None if limit is None else time.monotonic() + limit
        while (end := self._taken(number)) is None:
            alone = threading.active_count() <= self._threads and limit is None
            self.arena.waits_for = number if alone else -1
            try:
                self._read(number, deadline)
            finally:
                self.arena.waits_for = -1
        return end

    def has_ended(self, number: int) -> bool:
        """Whether `wait` would return at once."""
        self.flush()
        self._read_what_is_there()
        return number in self._ended

    def _taken(self, number: int) -> End | None:
        with self._turn:
            return self._ended.pop(number, None)

    def _read_what_is_there(self) -> None:
        while select.select([self._sock], [], [], 0)[0]:
            self._read(-1, None)

    def _read(self, number: int, deadline: float | None) -> None:
        """Reads once, or waits until another thread has read."""
        with self._turn:
            if number in self._ended:
                return
            if self._is_read:
                self._turn.wait(1.0 if deadline is None else max(0.0, deadline - time.monotonic()))
                return
            self._is_read = True
        try:
            if deadline is not None and not _readable(self._sock, deadline):
                raise RuntimeError(f"call {number} did not end in time")
            piece = self._sock.recv(1 << 16)
        except OSError:
            piece = b""
        finally:
            with self._turn:
                self._is_read = False
                self._turn.notify_all()
        if not piece:
            raise _lost(f"call {number}")
        self._note(piece)

    def _note(self, piece: bytes) -> None:
        with self._turn:
            self._inbox += piece
            for end in ends_in(self._inbox):
                self._ended[end.number] = end
                call = self._under_way.pop(end.number)
                call.arrived(end.at)
            self._turn.notify_all()


class Call:
    """A call under way: the handle of `Transport`.

    Args:
        link: the rank's.
        number: which of its calls.
        given: what it gives.
        result: where its result goes, or None.
    """

    def __init__(
        self, link: Link, number: int, given: torch.Tensor, result: torch.Tensor | None
    ) -> None:
        for tensor in (given, result):
            _refuse_freed(tensor)
        self.number, self._link, self._given, self._result = number, link, given, result
        self._taken: list[tuple[int, int]] = []
        self._then: list[Callable[[float], None]] = []
        self._end: End | None = None
        self._changed = False
        self.gives = self._room(given.nbytes)
        in_place = result is given
        self.gets = self.gives if in_place or result is None else self._room(result.nbytes)
        if given.numel():
            link.arena.at(self.gives, given.dtype, given.numel()).copy_(given.detach().view(-1))

    def _room(self, count: int) -> int:
        if not count:
            return FIRST
        begin = self._link.arena.take(count)
        self._taken.append((begin, count))
        return begin

    def when_done(self, then: Callable[[float], None]) -> None:
        """Calls `then` with the time of the end, when this rank hears of it."""
        self._then.append(then)

    def arrived(self, at: float) -> None:
        """The end has been heard of. From here on what was given may change, also before the wait.

        A program can know of the end by a later call, whose result depends on it: that is heard of
        later.
        """
        self._changed = self._given is not self._result and self._has_changed()
        for then in self._then:
            then(at)

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._end is not None or self._link.has_ended(self.number)

    def wait(self, limit: timedelta | None = None) -> int:
        """Waits, and puts the result where it belongs; the number of the new group, of a split.

        Raises:
            RuntimeError: it did not end within `limit`.
            CommError: it was not carried out, the switch is gone, or what was given has changed
                since the call.
        """
        if self._end is not None:
            return self._end.group
        end = self._link.wait(self.number, limit.total_seconds() if limit else None)
        self._end = end
        if self._result is not None and self._result.numel() and not end.refused:
            source = self._link.arena.at(self.gets, self._result.dtype, self._result.numel())
            # As a network writes: autograd is not told, though it may have saved this memory.
            self._result.data.view(-1).copy_(source)
        for begin, count in self._taken:
            self._link.arena.give_back(begin, count)
        if end.refused:
            found, _, why = end.refused.partition("\n")
            raise CommError(f"call {self.number} of this rank", found, why)
        if self._changed:
            raise CommError("a wait", f"what is sent ({_form(self._given)}) has changed", CHANGED)
        return end.group

    def _has_changed(self) -> bool:
        """Whether what was given is no longer what it was: a network might have sent either."""
        given = self._given.detach().view(-1)
        if not given.numel() or given.untyped_storage().nbytes() == 0:  # freed by hand
            return False
        then = self._link.arena.at(self.gives, given.dtype, given.numel())
        return not torch.equal(then.view(torch.uint8), given.view(torch.uint8))


def _refuse_freed(tensor: torch.Tensor | None) -> None:
    """Stops a call on memory that was given back by hand, where a copy would end the process."""
    if tensor is None or not tensor.numel():
        return
    there = tensor.untyped_storage().nbytes()
    needed = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    if there < needed:
        raise CommError(
            f"a call with {_form(tensor)}",
            f"a storage of {there} bytes, of the {needed} that they need",
            "the memory was given back: make room for them (resize_) before the call",
        )


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.numel()} elements of {str(tensor.dtype).removeprefix('torch.')}"


def _readable(sock: socket.socket, deadline: float) -> bool:
    return bool(select.select([sock], [], [], max(0.0, deadline - time.monotonic()))[0])


def _lost(what: str) -> CommError:
    return CommError(what, "the switch is gone", "the run has ended")
