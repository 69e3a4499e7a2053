"""Calls of simulated ranks: who meets whom, from when on, and what travels.

Notebook: 13 The mesh (a cluster in the cell).
Source: `comm.matching`, the engine that grading uses too; SMPI for equal ranks that are folded.
Costs nothing on the wire.
The production version is the network.

A call begins when the last of its ranks has come. The collectives of a group go one after another,
as on a GPU's stream; messages and calls of other groups go beside them. An equal rank is not run:
the representative's own n-th message over the same distance stands for what comes from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.cluster.fold import Fold
from course_lib.cluster.values import Tensors, carry_message, carry_values
from course_lib.cluster.wires import Wires
from course_lib.comm import CommError
from course_lib.comm.matching import Channel, Matching, Meeting, Post, find_difference
from course_lib.trace import Refusal


class Call:
    """One meeting: who has come, when, and when it is over."""

    def __init__(self, meeting: Meeting | None) -> None:
        self.meeting = meeting
        self.begin, self.payload = 0.0, 0
        self.end: float | None = None
        self.tensors: dict[int, Tensors] = {}  # of a collective
        self.ends: dict[str, torch.Tensor] = {}  # of a message, what is sent and where it is put
        self.waiters: list[Any] = []  # ranks whose programs stand still for it
        self.then: list[Callable[[float], None]] = []

    def done(self, at: float) -> None:
        """It is over."""
        self.end = at
        for then in self.then:
            then(at)


class Meetings:
    """All calls under way.

    Args:
        fold: which ranks are run.
        wires: what calls are started on.
        wake: what is done with a call that is over.
    """

    def __init__(self, fold: Fold, wires: Wires, wake: Callable[[Call], None]) -> None:
        self.fold, self.wires, self._wake = fold, wires, wake
        self.matching = Matching(fold.world)
        self.matching.groups[0] = fold.representatives
        # Of each group, its global ranks, and groups like it of ranks that are not run.
        self._members: list[tuple[int, ...]] = [tuple(range(fold.world))]
        self._copies: list[list[tuple[int, ...]]] = [[]]
        self._calls: dict[Meeting, Call] = {}
        self._alike: dict[tuple[int, int, int], list[Meeting]] = {}
        self._last: dict[int, Call] = {}  # of each group, its last collective

    def post(
        self, post: Post, now: float, payload: int, output: torch.Tensor, input: torch.Tensor
    ) -> Call:
        """Enters one rank's part of a call, at its time `now`.

        Raises:
            CommError: the parts of a call do not fit.
        """
        call = self._entered(self._meet(post), now)
        call.payload = max(call.payload, payload)
        if post.peer < 0:
            call.tensors[post.rank] = (output, input)
        else:
            call.ends[post.op] = input
        return self._if_complete(call)

    def cut(self, rank: int, real: tuple[int, ...], now: float) -> Call:
        """Enters that a rank will be in a group of these global ranks.

        Raises:
            Refusal: two ranks of one group are equal to each other in part only.
        """
        part = self.fold.folded(real)
        if rank not in part:
            raise Refusal(
                f"the group of ranks {list(real)[:8]}",
                f"rank {rank} stands for others of them",
                "ranks that are declared equal are cut alike: leave out the star",
            )
        return self._if_complete(self._entered(self._meet(Post(rank, "split", part=part)), now))

    def made(
        self, call: Call, rank: int, real: tuple[int, ...], parts: Sequence[Sequence[int]]
    ) -> int:
        """Number of the group that a cut has made for a rank."""
        assert call.meeting is not None
        number = call.meeting.made[rank]
        for known in (self._members, self._copies):
            known.extend(() for _ in range(number + 1 - len(known)))  # type: ignore[misc]
        part = self.fold.folded(real)
        same = (tuple(other) for other in parts if self.fold.folded(other) == part)
        self._members[number] = real
        self._copies[number] = [other for other in same if other != real]
        return number

    def _entered(self, meeting: Meeting, now: float) -> Call:
        call = self._calls.setdefault(meeting, Call(meeting))
        call.begin = max(call.begin, now)
        return call

    def _if_complete(self, call: Call) -> Call:
        meeting = call.meeting
        assert meeting is not None
        if meeting.complete:
            del self._calls[meeting]
            self._complete(call, meeting)
        return call

    def _meet(self, post: Post) -> Meeting:
        if post.peer < 0 or self.fold.of(post.peer) != post.rank:
            peer = post.peer if post.peer < 0 else self.fold.of(post.peer)
            return self.matching.post(post._replace(peer=peer))
        return self._meet_alike(post)

    def _meet_alike(self, post: Post) -> Meeting:
        """A message to or from an equal rank: what this rank sends on, it gets from behind as well.

        Its n-th message over a distance on the group is the one that comes over the same distance.
        """
        members = self._members[post.group]
        way = members.index(post.peer) - members.index(post.rank)
        distance = (way if post.op == "send" else -way) % len(members)
        key = (post.group, post.rank, distance)
        waiting = self._alike.setdefault(key, [])
        if waiting and post.op not in {each.op for each in waiting[0].posts.values()}:
            meeting = waiting.pop(0)
            meeting.posts[post.peer] = post
            return meeting
        ends = (post.rank, post.peer) if post.op == "send" else (post.peer, post.rank)
        meeting = Meeting(Channel(post.group, *ends), members, len(waiting))
        meeting.posts[post.rank] = post
        waiting.append(meeting)
        return meeting

    def _complete(self, call: Call, meeting: Meeting) -> None:
        self._carry(call, meeting)
        call.then.append(lambda _: self._wake(call))
        if meeting.channel.sender >= 0:
            self._start(call, meeting, self._ends(meeting))
            return
        before = self._last.get(meeting.channel.group)
        self._last[meeting.channel.group] = call
        members = self._members[meeting.channel.group]
        if before is None or before.end is not None:
            call.begin = max(call.begin, before.end or 0.0 if before else 0.0)
            self._start(call, meeting, members)
        else:  # the calls of a group go one after another
            before.then.append(lambda at: self._start_after(at, call, meeting, members))

    def _carry(self, call: Call, meeting: Meeting) -> None:
        """Looks whether the posts fit, and moves values that are known."""
        equal = len(call.ends) == 2 and self.fold.of(meeting.channel.sender) == self.fold.of(
            meeting.channel.receiver
        )
        difference = None if equal else find_difference(meeting)
        if difference is not None:
            raise CommError(
                "calls that belong together", difference.text, "all of them must ask for the same"
            )
        if call.ends:
            carry_message(call.ends["recv"], call.ends["send"])
        elif call.tensors:
            members = self._members[meeting.channel.group]
            carry_values(meeting.posts, call.tensors, members, self.fold)
        call.tensors, call.ends = {}, {}

    def _start_after(self, at: float, call: Call, meeting: Meeting, members: Sequence[int]) -> None:
        call.begin = max(call.begin, at)
        self._start(call, meeting, members)

    def _start(self, call: Call, meeting: Meeting, ranks: Sequence[int]) -> None:
        op = next(iter(meeting.posts.values())).op
        if op == "split":
            call.done(call.begin)
            return
        copies = self._copies[meeting.channel.group]
        if meeting.channel.sender >= 0:
            sender, receiver = map(self._members[meeting.channel.group].index, ranks)
            copies = [(other[sender], other[receiver]) for other in copies]
        self.wires.start(self.wires.price(op, ranks, call.payload, copies), call.begin, call.done)

    def _ends(self, meeting: Meeting) -> tuple[int, int]:
        """Sender and receiver as they lie in the cluster: a representative's own neighbour."""
        sends = next(p for p in meeting.posts.values() if p.op == "send")
        return sends.rank, sends.peer
