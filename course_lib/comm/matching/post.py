"""What one rank asks of the network, and the meeting of all that belongs to one call.

Notebook: none of its own.
Source: MPI's words: an operation is posted, and completes when its partners have posted theirs.
Costs nothing.
The production version keeps posted receives in a queue of each pair, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from course_lib.trace.hangs.desync import call_name
from course_lib.trace.hangs.flight import Record

COLLECTIVES = (
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier",
    "split",
)  # fmt: skip
MESSAGES = ("send", "recv")


class Post(NamedTuple):
    """One call of one rank, or its end of one message.

    Attributes:
        rank: global rank that calls.
        op: one of COLLECTIVES, or of MESSAGES.
        group: number of the group (see `Matching.groups`); 0 is the world.
        dtype: of the tensor given, without "torch."; "" if there is none.
        numel: elements of the tensor given.
        item: bytes of one element.
        reduction: `sum`, `max`, ... of a collective that reduces; else "".
        root: index in the group of a broadcast's or reduce's root; else -1.
        peer: global rank of a message's other end; else -1.
        tag: messages of one pair with different tags pass each other by.
        given: of an all_to_all, elements for each member.
        taken: of an all_to_all, elements from each member.
        part: of a split, global ranks of the new group that this rank will be in, in order.
        axis: name of the group's axis; for sentences only, it is not compared.
    """

    rank: int
    op: str
    group: int = 0
    dtype: str = ""
    numel: int = 0
    item: int = 1
    reduction: str = ""
    root: int = -1
    peer: int = -1
    tag: int = 0
    given: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    part: tuple[int, ...] = ()
    axis: str = ""


class Channel(NamedTuple):
    """Calls that are counted together: the n-th of each rank belongs to the n-th of the others.

    Attributes:
        group: number of the group.
        sender: of messages, global rank that sends them; -1 for collectives.
        receiver: of messages, global rank that takes them; -1 for collectives.
        tag: of the messages.
    """

    group: int
    sender: int = -1
    receiver: int = -1
    tag: int = 0


@dataclass(slots=True, eq=False)
class Meeting:
    """The posts of one call: it is complete, on all its ranks together, when none is lacking.

    It is also the handle of the call for each rank that has posted.

    Attributes:
        channel: what the call is counted in.
        group: global ranks of the group, in the order of their index.
        seq: number of the call on its channel, from 0.
        posts: global rank to what it has posted, in the order in which they came.
        made: of a split that is complete, global rank to the number of its new group.
    """

    channel: Channel
    group: tuple[int, ...]
    seq: int
    posts: dict[int, Post] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[int, ...]:
        """The ranks that must all post: the members, or the sender and the receiver."""
        return self.group if self.channel.sender < 0 else self.channel[1:3]

    @property
    def lacking(self) -> tuple[int, ...]:
        """Those that have not posted yet."""
        return tuple(rank for rank in self.ends if rank not in self.posts)

    @property
    def complete(self) -> bool:
        """Whether all have posted."""
        return len(self.posts) == (len(self.group) if self.channel.sender < 0 else 2)

    def name(self, rank: int) -> str:
        """The call as `rank` made it: `all_reduce, call 3 on dp [0, 2]`."""
        post = self.posts[rank]
        record = Record(
            rank, post.op, post.axis, self.group, self.seq, post.numel * post.item, (post.numel,),
            post.dtype, post.peer, 0.0, None, None,
        )  # fmt: skip
        return call_name(record)
