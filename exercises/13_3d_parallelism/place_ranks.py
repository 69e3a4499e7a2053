"""place_ranks: which node each rank of a mesh is on, so that no node's adapters have much to send.

Notebook 13. Open: there is no right answer.

Ranks are numbered along a mesh of this `shape`, the last axis fastest. On each axis with more than
one place, every rank sends sizes[axis] bytes to the next rank on that axis, the last to the first.
What stays in a node costs nothing. A node takes

    bytes that its ranks send to other nodes / rates[node],

and all wait for the slowest node.

Valid is a list of each rank's node:
- exactly `per_node` ranks on every node;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the slowest node's time over that with ranks in order; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

import random
from collections.abc import Sequence
from itertools import permutations, product


def place_ranks(
    shape: Sequence[int], sizes: Sequence[int], per_node: int, rates: Sequence[int]
) -> list[int]:
    """The node of each rank.

    Args:
        shape: places on each axis.
        sizes: bytes that a rank sends on each axis.
        per_node: ranks on a node.
        rates: bytes per second that leave each node.
    """
    raise NotImplementedError("place_ranks: the nodes")
