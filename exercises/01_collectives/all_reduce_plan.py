"""all_reduce_plan: an all-reduce, message by message, for links of unequal speed.

Notebook 01. Open: there is no right answer.

speeds[a][b] is what the link from rank a to b carries in a µs; 0: there is none. Each rank has
`chunks` chunks of `size` bytes. A plan is a list of rounds of messages (a, b, chunk, add): a sends
its chunk as it was before the round; b adds it to its own if `add` is 1, or replaces its own if 0.
A round takes

    latency + the longest of its links' bytes / speed.

A plan is valid if
- in the end every rank has the sum over all ranks, each counted once;
- a chunk that is replaced on a rank gets no other message in that round;
- it is the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: a lower bound over the rounds' time; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections import Counter
from collections.abc import Sequence

Message = tuple[int, int, int, int]  # from, to, chunk, whether it is added
Tree = dict[int, int]  # the parent of each rank but the root; parents come first


def all_reduce_plan(
    speeds: Sequence[Sequence[int]], chunks: int, size: int, latency: int
) -> list[list[Message]]:
    """The messages of each round.

    Args:
        speeds: bytes in a µs from each rank (row) to each other (column); the same both ways.
        chunks: of each rank's vector.
        size: bytes of a chunk.
        latency: µs of a round.
    """

    raise NotImplementedError("all_reduce_plan: the rounds")
