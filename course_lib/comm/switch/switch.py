"""The switch itself: takes the ranks' calls, matches them, moves the data, and books everything.

Notebook: none of its own.
Source: MPI's progress engine, for all ranks in one place.
Costs: about 20 microseconds for each call of a rank, and the copies that `carry` tells.
The production version is a process of its own for each rank.

It has no loop and no thread: whoever owns it hears what ranks say when there is something to hear
(`fileno`), and asks for a deadlock when nothing comes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from course_lib.comm.errors import CommError
from course_lib.comm.matching import (
    Deadlock,
    Difference,
    Matching,
    Meeting,
    Post,
    find_deadlock,
    find_difference,
)
from course_lib.comm.switch.arena import FIRST, SIZE, Arena, shared_file
from course_lib.comm.switch.book import Booked, booked
from course_lib.comm.switch.carry import INTO, Place, carry
from course_lib.comm.switch.frames import DTYPES, Ask, End, Garbled, Mark, frames_in, pack_end

MOST_SAID = 1 << 26  # bytes of calls and marks from one rank
MOST_BOOKED = 1 << 17  # calls and marks of one rank: the book keeps them all
TURN = 0.05  # seconds after which it is another rank's turn, however much one has to say
WHY = "all ranks of a group must make the same calls, in the same order and with the same sizes"


@dataclass
class _End:
    """One rank's connection, on the switch's side.

    Attributes:
        sock: to the rank.
        arena: shared with it.
        given: the other end of both, as open files for the rank.
        inbox: what has come of its next frame.
        outbox: what it has not taken yet.
        calls: how many it has made.
        said: bytes that have come from it.
        open: those that have not ended, by their number.
    """

    sock: socket.socket
    arena: Arena
    given: tuple[int, int]
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    calls: int = 0
    said: int = 0
    open: dict[int, Meeting] = field(default_factory=dict)


@dataclass
class _Call:
    """One rank's part of a call under way."""

    number: int
    ask: Ask
    entry: Booked


class Switch:
    """The network of a run.

    Args:
        world: how many ranks there are.

    Attributes:
        book: for each rank its calls and marks so far, in the order in which they came.
        difference: the first call that was not the same on its ranks, if there was one.
        behind: ranks that have said more than there was time for: to be heard again.
    """

    def __init__(self, world: int) -> None:
        self.book: list[list[Booked | Mark]] = [[] for _ in range(world)]
        self.difference: Difference | None = None
        self.behind: set[int] = set()
        self._matching = Matching(world)
        self._ends = [_new_end() for _ in range(world)]
        self._under_way: dict[Meeting, dict[int, _Call]] = {}

    def files(self, rank: int) -> tuple[int, int]:
        """A rank's socket and arena as open files, to be handed to its process: see `Link`."""
        return self._ends[rank].given

    def close_files(self, rank: int) -> None:
        """Closes this process's copies of them, once the rank has its own."""
        for fd in self._ends[rank].given:
            socket.close(fd)

    def fileno(self, rank: int) -> int:
        """The file number that becomes readable when a rank has said something."""
        return self._ends[rank].sock.fileno()

    def close(self) -> None:
        """Ends all connections."""
        for end in self._ends:
            end.sock.close()

    # --- hearing -------------------------------------------------------------------------------
    def hear(self, rank: int) -> bool:
        """Takes what a rank has said, without waiting; whether it may say more.

        Raises:
            Garbled: what it said is no call.
        """
        end, until = self._ends[rank], time.monotonic() + TURN
        more = True
        try:
            while more and self._understand(rank, end, until):
                piece = end.sock.recv(1 << 16, socket.MSG_DONTWAIT)
                end.inbox += piece
                end.said += len(piece)
                if end.said > MOST_SAID:
                    raise Garbled(f"more than {MOST_SAID >> 20} MiB of calls and marks")
                more = bool(piece)
        except BlockingIOError:
            pass
        except OSError:
            more = False
        finally:
            for other in self._ends:
                if other.outbox:
                    self._flush(other)
        return more

    def _understand(self, rank: int, end: _End, until: float) -> bool:
        """Takes the calls and marks that have come whole; whether there was time for all."""
        self.behind.add(rank)
        for said in frames_in(end.inbox, rank):
            now = time.monotonic()
            if max(end.calls, len(self.book[rank])) > MOST_BOOKED:
                raise Garbled(f"more than {MOST_BOOKED:,} calls and marks")
            if isinstance(said, Mark):
                self.book[rank].append(said._replace(at=now))
                continue
            try:
                self._take(end, said)
            except (LookupError, TypeError, OverflowError) as error:
                raise Garbled(f"a call that cannot be: {error}"[:200]) from None
            if now > until:
                return False
        self.behind.discard(rank)
        return True

    def _take(self, end: _End, ask: Ask) -> None:
        number, now = end.calls, time.monotonic()
        end.calls += 1
        _check_place(ask)
        try:
            _check_reduction(ask.post)
            meeting = self._matching.post(ask.post)
        except CommError as error:
            end.outbox += pack_end(End(number, now, 0, str(error)))
            return
        entry = booked(ask, meeting, now)
        self.book[ask.post.rank].append(entry)
        end.open[number] = meeting
        calls = self._under_way.setdefault(meeting, {})
        calls[ask.post.rank] = _Call(number, ask, entry)
        if meeting.complete:
            self._complete(meeting, self._under_way.pop(meeting))

    def _complete(self, meeting: Meeting, calls: dict[int, _Call]) -> None:
        """Carries out a call whose last rank has come. One that does not fit never ends."""
        found = find_difference(meeting)
        if found is not None:
            self.difference = self.difference or found
            return
        text = self._carried(meeting, calls)
        now = time.monotonic()
        for rank, call in calls.items():
            call.entry.event.end = now
            end = self._ends[rank]
            del end.open[call.number]
            end.outbox += pack_end(End(call.number, now, meeting.made.get(rank, 0), text))

    def _carried(self, meeting: Meeting, calls: dict[int, _Call]) -> str:
        """Moves the data; why it could not, if torch refuses: what it knows no sum for."""
        try:
            carry(meeting, {rank: self._place(rank, call.ask) for rank, call in calls.items()})
        except (RuntimeError, ValueError, LookupError) as error:
            return f"{type(error).__name__}: {error}"[:500]
        return ""

    def _place(self, rank: int, ask: Ask) -> Place:
        arena, dtype = self._ends[rank].arena, DTYPES.get(ask.post.dtype, torch.uint8)
        given = arena.at(ask.gives, dtype, ask.post.numel)
        return Place(ask.post, given, arena.at(ask.gets, dtype, ask.takes))

    # --- saying --------------------------------------------------------------------------------
    @staticmethod
    def _flush(end: _End) -> None:
        """Sends what the rank takes now; the rest waits until somebody has said something again."""
        try:
            while end.outbox:
                del end.outbox[: end.sock.send(end.outbox, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            return
        except OSError:
            end.outbox.clear()  # it is gone

    def refuse_all(self, why: str) -> None:
        """Ends all calls under way: they raise on the ranks that wait for them."""
        now = time.monotonic()
        for end in self._ends:
            for number in end.open:
                end.outbox += pack_end(End(number, now, 0, _refusal(why)))
            end.open.clear()
            self._flush(end)

    # --- knowing -------------------------------------------------------------------------------
    def standstill(self, running: Collection[int]) -> Deadlock | Difference | None:
        """Why no rank can go on, if none can: posts that do not fit, or ranks that wait in a ring.

        Args:
            running: ranks whose programs have not ended; all have just been heard.
        """
        if self.difference is not None:
            return self.difference
        waiting: dict[int, Meeting] = {}
        for rank in running:
            end = self._ends[rank]
            meeting = end.open.get(end.arena.waits_for)
            if meeting is None or end.outbox or end.inbox or self.behind:
                return None  # it computes
            waiting[rank] = meeting
        return self._matching.difference() or find_deadlock(waiting, ())


def _new_end() -> _End:
    mine, theirs = socket.socketpair()
    fd = shared_file()
    return _End(mine, Arena(socket.dup(fd)), (theirs.detach(), fd))


def _check_place(ask: Ask) -> None:
    """Refuses memory outside of the arena.

    Raises:
        Garbled: our own transport asks for nothing of the kind.
    """
    post = ask.post
    item = DTYPES[post.dtype].itemsize if post.dtype else 1
    sizes = (*post.given, *post.taken, post.numel, ask.takes)
    ends = (ask.gives + post.numel * item, ask.gets + ask.takes * item)
    if min(sizes) < 0 or min(ask.gives, ask.gets) < FIRST or max(ends) > SIZE or post.item != item:
        raise Garbled("a call on memory that is not there")


def _check_reduction(post: Post) -> None:
    """Looks whether torch can add up such numbers.

    Raises:
        CommError: a reduction that nobody knows, or one of truth values.
    """
    if post.reduction and (post.reduction not in INTO or post.dtype == "bool"):
        raise CommError(
            f"{post.op} of {post.dtype} with {post.reduction!r}",
            f"known reductions: {', '.join(INTO)}",
            "cast it first",
        )


def _refusal(text: str) -> str:
    return f"{text}\n{WHY}"
