"""The matching engine: takes calls as ranks post them, and says which are complete together.

Notebook: none of its own.
Source: MPI 4.0, section 6.12 (collectives match in the order in which a group's members call them)
and 3.5 (messages of a pair do not overtake each other).
Costs: two look-ups in a table for each call.
The production version must do this without one place that sees all ranks.
"""

from __future__ import annotations

from course_lib.comm.errors import CommError
from course_lib.comm.matching.fit import Difference, find_difference
from course_lib.comm.matching.post import COLLECTIVES, MESSAGES, Channel, Meeting, Post


class Matching:
    """All calls of a run that are not complete yet.

    A collective is complete when every member of its group has posted it; a message when both ends
    have, so a send waits for its receive. A rank may post a call before its earlier ones are
    complete: that is what an asynchronous call and a batch of messages are.

    Args:
        world: how many ranks there are.

    Attributes:
        groups: global ranks of each group, in the order of their index; group 0 is the world.
    """

    def __init__(self, world: int) -> None:
        self.groups: list[tuple[int, ...]] = [tuple(range(world))]
        self._counts: dict[tuple[Channel, int], int] = {}
        self._open: dict[tuple[Channel, int], Meeting] = {}

    @property
    def open(self) -> list[Meeting]:
        """Meetings that lack posts, the oldest first."""
        return list(self._open.values())

    def post(self, post: Post) -> Meeting:
        """Enters one rank's call.

        Returns:
            Its meeting. If that is complete now, all its ranks may go on, if they fit: whoever
            moves data asks `find_difference` first.

        Raises:
            CommError: no such call can be made: an unknown operation or group, a rank, root or
                peer that is not in the group, or sizes that are not one for each member.
        """
        channel = self._channel(post)
        seq = self._counts.get((channel, post.rank), 0)
        self._counts[channel, post.rank] = seq + 1
        meeting = self._open.get((channel, seq))
        if meeting is None:
            meeting = Meeting(channel, self.groups[post.group], seq)
            self._open[channel, seq] = meeting
        meeting.posts[post.rank] = post
        if meeting.complete:
            del self._open[channel, seq]
            if post.op == "split" and find_difference(meeting) is None:
                self._cut(meeting)
        return meeting

    def difference(self) -> Difference | None:
        """The first open meeting whose posts do not fit already; they never will."""
        found = (find_difference(meeting) for meeting in self._open.values())
        return next((each for each in found if each is not None), None)

    def _cut(self, meeting: Meeting) -> None:
        """Makes the groups of a split; a part that several ranks are in is one group."""
        made: dict[tuple[int, ...], int] = {}
        for rank in meeting.group:
            part = meeting.posts[rank].part
            if part not in made:
                made[part] = len(self.groups)
                self.groups.append(part)
            meeting.made[rank] = made[part]

    def _channel(self, post: Post) -> Channel:
        members = self.groups[post.group] if 0 <= post.group < len(self.groups) else ()
        if post.rank not in members:
            raise _refused(
                post, f"group {post.group}: ranks {list(members)}", "only members call on a group"
            )
        if post.op in COLLECTIVES:
            self._check_collective(post, len(members))
            return Channel(post.group)
        if post.op not in MESSAGES:
            raise _refused(
                post,
                f"known: {', '.join((*COLLECTIVES, *MESSAGES))}",
                "the network has no such call",
            )
        if post.peer not in members or post.peer == post.rank:
            raise _refused(post, f"the other end is rank {post.peer}", "a peer is another member")
        ends = (post.rank, post.peer) if post.op == "send" else (post.peer, post.rank)
        return Channel(post.group, *ends, post.tag)

    def _check_collective(self, post: Post, size: int) -> None:
        if post.op in ("broadcast", "reduce") and not 0 <= post.root < size:
            raise _refused(post, f"root {post.root} of {size} members", "a root is a member")
        if post.op == "all_to_all" and not len(post.given) == len(post.taken) == size:
            raise _refused(
                post, f"sizes for {len(post.given)} of {size} members", "there must be one for each"
            )
        if post.op == "split" and (post.group or post.rank not in post.part):
            raise _refused(post, f"part {list(post.part)}", "all ranks cut, and are in their part")


def _refused(post: Post, found: str, why: str) -> CommError:
    return CommError(f"{post.op} by rank {post.rank}", found, why)
