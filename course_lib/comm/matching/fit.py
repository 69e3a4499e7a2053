"""Whether the posts of one call fit each other, and if not, in what.

Notebook: none of its own.
Source: `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares the same things before each collective.
Costs nothing on the wire.
The production version compares only where it is told to, since ranks must exchange what they ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from course_lib.comm.matching.post import Meeting, Post
from course_lib.trace.hangs.desync import names

BYTES = "uint8"  # a message of bytes fits every dtype


@dataclass(frozen=True)
class Difference:
    """Posts of one call that do not fit.

    Attributes:
        kind: `operation`, `reduction`, `dtype`, `size`, `root`, `sizes` (of an all_to_all) or
            `parts` (of a split): the first of these in which they differ.
        meeting: the call.
        said: what was asked for in that, and by which ranks; what most asked for comes first.
    """

    kind: str
    meeting: Meeting
    said: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that differ from what most asked for; both ends of a message."""
        others = self.said if self.meeting.channel.sender >= 0 else self.said[1:]
        return tuple(sorted(rank for _, ranks in others for rank in ranks))

    @property
    def text(self) -> str:
        """What happened, in one sentence."""
        each = "; ".join(f"{names(ranks)} {text}" for text, ranks in self.said)
        meeting = self.meeting
        if meeting.channel.sender >= 0:
            _, sender, receiver, _ = meeting.channel
            what = f"Message {meeting.seq} from rank {sender} to rank {receiver}"
            return f"{what} is not the same at both ends: {each}."
        axis = next(iter(meeting.posts.values())).axis or "ranks"
        call = f"Call {meeting.seq} on {axis} {list(meeting.group)}"
        return f"{call} is not the same everywhere: {each}."


def find_difference(meeting: Meeting) -> Difference | None:
    """In what the posts that are there differ; None if they fit so far."""
    if meeting.channel.sender >= 0:
        return _of_message(meeting)
    posts = meeting.posts.values()
    features = {(p.op, p.reduction, p.dtype, p.numel, p.root) for p in posts}
    op = next(iter(features))[0]
    if len(features) > 1:
        for kind, say in SAID.items():
            uneven = kind == "size" and op == "all_to_all"
            if not uneven and len({say(post) for post in posts}) > 1:
                return _difference(kind, meeting, say)
    if op == "all_to_all":
        return _of_sizes(meeting)
    return _of_parts(meeting) if op == "split" else None


# What must be the same on all members of a collective, as a sentence says it.
SAID: dict[str, Callable[[Post], str]] = {
    "operation": lambda post: f"called {post.op}",
    "reduction": lambda post: f"asked for the {post.reduction}",
    "dtype": lambda post: f"gave {post.dtype}",
    "size": lambda post: f"gave {_size(post)}",
    "root": lambda post: f"named index {post.root} as the root",
}


def _of_message(meeting: Meeting) -> Difference | None:
    """A message arrives as it was sent; bytes may be taken for any dtype."""
    if not meeting.complete:
        return None
    verbs = {"send": "sends", "recv": "takes"}
    kinds = {post.dtype for post in meeting.posts.values()} - {BYTES}
    if len(kinds) > 1:
        return _difference("dtype", meeting, lambda post: f"{verbs[post.op]} {post.dtype}")
    if len({post.numel * post.item for post in meeting.posts.values()}) > 1:
        return _difference("size", meeting, lambda post: f"{verbs[post.op]} {_size(post)}")
    return None


def _of_sizes(meeting: Meeting) -> Difference | None:
    """What one member gives another is what the other takes."""
    for at, giver in enumerate(meeting.group):
        for to, taker in enumerate(meeting.group):
            posts = meeting.posts
            if giver not in posts or taker not in posts:
                continue
            given, taken = posts[giver].given[to], posts[taker].taken[at]
            if given != taken:
                said = (
                    (f"gives {given} elements to rank {taker}", (giver,)),
                    (f"takes {taken} elements from rank {giver}", (taker,)),
                )
                return Difference("sizes", meeting, said)
    return None


def _of_parts(meeting: Meeting) -> Difference | None:
    """Ranks that will be in one group name the same group."""
    for rank, post in meeting.posts.items():
        for other in post.part:
            named = meeting.posts[other].part if other in meeting.posts else post.part
            if named != post.part:
                said = (
                    (f"wants to be in {list(post.part)}", (rank,)),
                    (f"wants to be in {list(named)}", (other,)),
                )
                return Difference("parts", meeting, said)
    return None


def _difference(kind: str, meeting: Meeting, say: Callable[[Post], str]) -> Difference:
    """Who asked for what, the largest number of ranks first."""
    alike: dict[str, list[int]] = {}
    for rank in sorted(meeting.posts):
        alike.setdefault(say(meeting.posts[rank]), []).append(rank)
    order = sorted(alike.items(), key=lambda each: (-len(each[1]), each[1]))
    return Difference(kind, meeting, tuple((text, tuple(ranks)) for text, ranks in order))


def _size(post: Post) -> str:
    elements = f"{post.numel} element{'' if post.numel == 1 else 's'}"
    return f"{elements} of {post.dtype} ({post.numel * post.item} bytes)"
