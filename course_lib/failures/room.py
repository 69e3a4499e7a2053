"""The machine room: a process a rank, which can be killed, frozen and cut off, and replaced.

Notebook: 17 Training through failures.
Source: chaos engineering; Linux's signals do what a broken node does.
Costs 30 ms a process, from the preloaded one.
The production version is a scheduler (Slurm, Kubernetes) that finds another node.
"""

from __future__ import annotations

import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

from course_lib.failures.record import Fault, Job
from course_lib.ranks.pool.pack import by_value, packed
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.forkserver import Child, ForkServer
from course_lib.trace import Refusal

HURTS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "cut": signal.SIGUSR1}
CURES = {"freeze": signal.SIGCONT, "cut": signal.SIGUSR2}
ENDING = 10.0  # seconds in which a process that was killed must have ended
PATIENCE = 0.5  # seconds in which a process must take a message: a frozen one may not


class Seat:
    """A rank's place: the process that sits there now, and what was heard of it.

    Attributes:
        ready: whether it has said `hello`, and was not sent away since.
        step: how many steps its weights have seen, as far as is known.
        heard: when it was last heard of, and `worked` when it last got on.
        cured: when its fault is over; None if it has none.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.child: Child | None = None
        self.channel: Channel | None = None
        self.ready = False
        self.step: int | None = None
        self.heard = self.worked = 0.0
        self.fault: Fault | None = None
        self.cured: float | None = None

    @property
    def has_weights(self) -> bool:
        """A process that has just taken a lost one's seat has none yet."""
        return self.ready and self.fault is None and self.step is not None

    def standing(self) -> str:
        """What is known of it, for an error."""
        return (
            f"rank {self.rank} {self.fault.kind if self.fault else 'without a fault'}, "
            f"{'ready' if self.ready else 'not ready'}, step {self.step}, "
            f"silent for {time.monotonic() - self.heard:.1f} s"
        )

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Tells it something; whoever does not take it is given up."""
        if self.channel is not None:
            try:
                self.channel.send(message, fds=fds, timeout=PATIENCE)
            except (ChannelClosed, OSError):
                self.empty()

    def empty(self) -> None:
        """Nobody sits here any more; a process that still does is killed."""
        if self.channel is not None:
            self.channel.close()
        if self.child is not None:
            self.child.kill()
        self.channel, self.ready = None, False


class Room:
    """All ranks' processes.

    Args:
        make: makes the job of a rank, the same on all.
        ranks: how many.
        server: what they are forked from.
        beat: seconds between two heartbeats.
        kept: where checkpoints go: a file's name, "" for memory, or None if there are none.
    """

    def __init__(
        self,
        make: Callable[[], Job],
        ranks: int,
        server: ForkServer,
        beat: float,
        kept: str | None,
    ) -> None:
        self.server, self.beat, self.kept = server, beat, kept
        self.seats = [Seat(rank) for rank in range(ranks)]
        self.started: list[Child] = []
        with by_value(make):
            self.job = packed(make)

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()
        self.job.close()

    def clear(self) -> None:
        """Ends every process, frozen ones too, and waits until it has ended."""
        for seat in self.seats:
            seat.empty()
        for child in self.started:
            child.wait(ENDING)

    def start(self, seat: Seat) -> None:
        """A new process for a seat."""
        seat.empty()
        channel, theirs = Channel.pair()
        args = {"rank": seat.rank, "beat": self.beat, "kept": self.kept}
        try:
            target = "course_lib.failures.member:main"
            seat.child = self.server.fork(target, args, (theirs.fileno(),))
        finally:
            theirs.close()
        self.started = [child for child in self.started if child.status is None] + [seat.child]
        seat.channel = channel
        self.job.send(channel, {})

    def strike(self, fault: Fault, now: float) -> None:
        """A fault befalls its rank; one that is killed has ended when this returns.

        The preloaded process sends the signal, and may be late on a busy machine. Whoever decides
        in between would build on a rank that is as good as dead.
        """
        seat = self.seats[fault.rank]
        seat.fault, seat.cured = fault, now + fault.seconds
        assert seat.child is not None
        seat.child.kill(HURTS[fault.kind])
        if fault.kind == "kill":
            seat.child.wait(ENDING)

    def cure(self, seat: Seat) -> None:
        """A fault is over: the process goes on, or another takes its seat."""
        assert seat.fault is not None
        if seat.fault.kind == "kill" or seat.channel is None:
            self.start(seat)
        elif seat.child is not None:
            seat.child.kill(CURES[seat.fault.kind])
        seat.fault = seat.cured = None

    def listen(self, seconds: float) -> Iterator[tuple[Seat, dict[str, Any], bytes]]:
        """What the ranks say; waits so long for the first word. Heartbeats are only noted."""
        poller = select.poll()
        seats = {seat.channel.fileno(): seat for seat in self.seats if seat.channel is not None}
        for number in seats:
            poller.register(number, select.POLLIN)
        poller.register(self.server.fileno(), select.POLLIN)
        for number, _ in poller.poll(seconds * 1000):
            if number in seats:
                yield from self._words(seats[number])
        self.server.collect(0.0)

    def _words(self, seat: Seat) -> Iterator[tuple[Seat, dict[str, Any], bytes]]:
        """All that one rank has said; its seat is empty if it has ended."""
        with suppress(TimeoutError):
            while seat.channel is not None:
                try:
                    message, data, _ = seat.channel.receive(0)
                except (ChannelClosed, ConnectionError):
                    seat.channel.close()
                    seat.channel, seat.ready = None, False
                    return
                seat.heard = time.monotonic()
                seat.worked = seat.heard - message.pop("idle", 0.0)
                if message["say"] != "beat":
                    yield seat, message, data


def random_faults(
    ranks: int,
    every: float,
    seconds: float,
    away: float,
    seed: int = 0,
    kinds: tuple[str, ...] = ("kill", "freeze", "cut"),
) -> list[Fault]:
    """Faults at random moments, as a Poisson process.

    Args:
        ranks: how many ranks there are; each is as likely as the others.
        every: mean seconds between two faults of the job.
        seconds: faults come within these.
        away: mean seconds for which a rank is away.
        seed: the same seed, the same faults.
        kinds: which are drawn.

    Raises:
        Refusal: `every` is no length of time.
    """
    if not 0 < every < inf:
        raise Refusal("faults at random moments", f"one in {every} s", "this is a time above 0")
    chance, now, found = random.Random(seed), 0.0, list[Fault]()
    while (now := now + chance.expovariate(1 / every)) < seconds:
        kind, rank = chance.choice(kinds), chance.randrange(ranks)
        found.append(Fault(now, kind, rank, away * chance.uniform(0.5, 1.5)))
    return found
