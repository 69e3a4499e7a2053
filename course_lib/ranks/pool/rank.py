"""One rank as the pool sees it: two channels, a pipe with its output, and a process."""

from __future__ import annotations

import os
import socket

from course_lib.ranks.hosts.hosts import EmulatedHosts
from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import Child, ForkServer


class RankEnd:
    """The near end of one rank: its channels, its output and its process.

    Attributes:
        requests: how many things it was told to do.
    """

    def __init__(self, index: int, channel: Channel, questions: Channel, output: int) -> None:
        self.index, self.channel, self.questions, self.output = index, channel, questions, output
        self.requests = 0
        self.child: Child

    @classmethod
    def start(
        cls,
        server: ForkServer,
        index: int,
        world_size: int,
        device: str,
        listener: socket.socket,
        network: EmulatedHosts | None = None,
    ) -> RankEnd:
        """Has the preloaded process fork it, on its host if there is a `network` of them."""
        channel, theirs = Channel.pair()
        questions, their_questions = Channel.pair()
        output, their_output = os.pipe()
        rank = cls(index, channel, questions, output)
        os.set_blocking(output, False)
        fds = [theirs.fileno(), their_questions.fileno(), their_output]
        if index == 0:
            fds.append(listener.fileno())
        if network is not None:
            fds.append(network.namespace(index // network.ranks_per_host(world_size)))
        args = {"rank": index, "world_size": world_size, "device": device,
                "port": listener.getsockname()[1],
                "hosts": network.hosts if network else 1}  # fmt: skip
        try:
            rank.child = server.fork(
                "course_lib.ranks.rank_process.worker:main", args, tuple(fds), stdout=2
            )
        except BaseException:
            rank.close()
            raise
        finally:
            theirs.close()
            their_questions.close()
            os.close(their_output)
        return rank

    def end(self) -> None:
        """Kills it and closes what belongs to it."""
        self.child.kill()
        self.close()

    def close(self) -> None:
        """Closes this side of it, once; a rank that is not busy ends then."""
        self.channel.close()
        self.questions.close()
        output, self.output = self.output, -1
        if output >= 0:
            os.close(output)
