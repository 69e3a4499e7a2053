"""How a rank reaches the others: sockets that the coordinator hands out, and that may go silent.

Notebook: 17 Training through failures.
Source: torchft's process groups, which are made again for each quorum and can be given up.
Costs 2(N-1)/N·S bytes sent a member and step, as a ring; the sum has one order on all members.
The production version gives up an NCCL communicator, which may take seconds.

A process group of torch.distributed dies with its first member. Here each pair of members has a
connection of its own, which lives as long as their quorum. Whatever happens on one, the wait ends
as soon as the coordinator has something to say.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence

import torch

from course_lib.failures.parcel import memory
from course_lib.failures.record import ordered_mean
from course_lib.ranks.start.channel import Channel

LOOK = 0.05  # seconds between two looks whether the wire is whole again


class Abandoned(Exception):
    """The step cannot end: a peer is gone, or the coordinator has decided something else."""


class Cable:
    """The cable of one rank. SIGUSR1 cuts it and SIGUSR2 mends it, as if somebody pulled it out.

    What is cut off neither sends nor receives. Nothing is closed: TCP would not notice either.
    """

    def __init__(self) -> None:
        self.cut = False
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "cut", True))
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "cut", False))

    def wait(self) -> None:
        """Returns once it is whole."""
        while self.cut:
            time.sleep(LOOK)


class Wire:
    """The connections of one quorum, as one of its members uses them.

    Args:
        peers: the other members, and the connection to each.
        control: the coordinator's; only looked at.
        cable: this rank's.
        alive: is called again and again in a wait, which is not a hang.
    """

    def __init__(
        self,
        peers: dict[int, socket.socket],
        control: Channel,
        cable: Cable,
        alive: Callable[[], None],
    ) -> None:
        self.peers, self.control, self.cable, self.alive = peers, control, cable, alive
        for each in peers.values():
            each.setblocking(False)

    def close(self) -> None:
        """Ends all connections: a peer that still waits for this rank notices."""
        for each in self.peers.values():
            each.close()

    def exchange(self, going: dict[int, torch.Tensor], coming: dict[int, torch.Tensor]) -> None:
        """Sends and receives one contiguous tensor from and to each of some peers, all at once.

        Raises:
            Abandoned: see there. What has come is worthless then, and so is this wire.
        """
        out = {rank: memory(t) for rank, t in going.items() if t.numel()}
        into = {rank: memory(t) for rank, t in coming.items() if t.numel()}
        with selectors.DefaultSelector() as selector:
            selector.register(self.control, selectors.EVENT_READ)
            for rank in {*out, *into}:
                selector.register(self.peers[rank], _wanted(rank, out, into), rank)
            while out or into:
                self.alive()
                self.cable.wait()
                for key, events in selector.select(LOOK):
                    if key.fileobj is self.control:
                        raise Abandoned("the coordinator has decided otherwise")
                    self._move(key.data, events, out, into)
                    if wanted := _wanted(key.data, out, into):
                        selector.modify(key.fileobj, wanted, key.data)
                    else:
                        selector.unregister(key.fileobj)

    def _move(
        self, rank: int, events: int, out: dict[int, memoryview], into: dict[int, memoryview]
    ) -> None:
        """Moves what the system takes or has, and forgets a tensor that is through."""
        peer = self.peers[rank]
        try:
            if events & selectors.EVENT_WRITE and rank in out:
                out[rank] = out[rank][peer.send(out[rank]) :]
            if events & selectors.EVENT_READ and rank in into:
                count = peer.recv_into(into[rank])
                if not count:
                    raise Abandoned(f"rank {rank} is gone")
                into[rank] = into[rank][count:]
        except BlockingIOError:
            return
        except OSError as error:
            raise Abandoned(f"rank {rank} is gone") from error
        for views in (out, into):
            if rank in views and not views[rank]:
                del views[rank]

    def mean(
        self, gradient: torch.Tensor, rank: int, order: Sequence[int], members: Sequence[int]
    ) -> torch.Tensor:
        """The mean over the ranks that have a batch, for all members.

        Each of them adds up one part, in the given order, and sends the result to everybody.

        Args:
            gradient: this rank's, flat; of a rank without a batch only the size matters.
            rank: this one.
            order: ranks with a batch, in the order in which they are added up.
            members: all who get the mean.
        """
        mean = torch.empty_like(gradient)
        place = dict(zip(sorted(order), mean.tensor_split(len(order)), strict=True))
        if rank in place:
            own = dict(zip(sorted(order), gradient.tensor_split(len(order)), strict=True))
            parts = {each: torch.empty_like(own[rank]) for each in order if each != rank}
            self.exchange({each: own[each] for each in parts}, parts)
            parts[rank] = own[rank]
            place[rank].copy_(ordered_mean([parts[each] for each in order]))
        going = {each: place[rank] for each in members if each != rank} if rank in place else {}
        self.exchange(going, {each: part for each, part in place.items() if each != rank})
        return mean


def _wanted(rank: int, out: dict[int, memoryview], into: dict[int, memoryview]) -> int:
    """The events that a peer is waited for."""
    return selectors.EVENT_WRITE * (rank in out) | selectors.EVENT_READ * (rank in into)
