"""all_reduce_plan: plan an all-reduce, message by message, for links of unequal speed.

Notebook 01. This exercise is open: it has no single right answer. Valid plans are compared by the
time that they take.

Every rank has a vector of `chunks` chunks of `size` bytes each, and in the end every rank must have
the sum of all vectors. You return a plan: a list of rounds, each a list of messages (a, b, chunk,
add). In a message, rank a sends its chunk number `chunk` to rank b. If `add` is 1, rank b adds it
to its own chunk of that number; if `add` is 0, it replaces its own chunk. All messages of a round
carry the values from before the round. A round takes

    latency + the largest (bytes sent over a link in this round / speed of the link).

The two directions of a link count as two links.

A plan is valid if
- after the last round, every chunk on every rank is the sum over all ranks, each counted once;
- every message goes over a link that exists;
- a chunk that is replaced in a round receives no other message in that round;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: a lower bound for the time, divided by the time of your plan; more is better, and no plan
reaches more than 1. The figure is the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

import math
from collections import Counter
from collections.abc import Sequence

Message = tuple[int, int, int, int]  # from, to, chunk, whether it is added
Tree = dict[int, int]  # the parent of each rank except the root; parents come first


def all_reduce_plan(
    speeds: Sequence[Sequence[int]], chunks: int, size: int, latency: int
) -> list[list[Message]]:
    """Plans the rounds.

    Args:
        speeds: `speeds[a][b]` is the speed of the link from rank a to rank b in bytes per µs, the
            same in both directions; 0 means that there is no link. The links connect all ranks.
        chunks: number of chunks in each rank's vector.
        size: bytes of one chunk.
        latency: µs that each round costs, whatever is sent in it.

    Returns:
        The rounds in order; the four numbers of a message are Python ints, counted from 0.
    """

    raise NotImplementedError("all_reduce_plan: the rounds")
