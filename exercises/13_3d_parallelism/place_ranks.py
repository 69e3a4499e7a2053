"""place_ranks: place the ranks of a mesh on nodes so that no node has to send for long.

Notebook 13. This exercise is open: it has no single right answer. Valid placements are compared by
the time of the slowest node.

The ranks are numbered through a mesh of this `shape`, and the last axis runs fastest. Along each
axis of more than one place the ranks form rings: every rank sends sizes[axis] bytes to the next
rank of its ring, and the last sends to the first. Bytes that stay inside a node cost nothing. A
node takes

    bytes that its ranks send to other nodes / rates[node],

and all wait for the slowest node.

You return the node of each rank. A placement is valid if
- exactly `per_node` ranks are on every node;
- two ranks that get the same arguments return the same placement: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the slowest node's time, divided by its time if the ranks fill the nodes in order, which
means rank r on node r // per_node; less is better. The figure is the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

import random
from collections.abc import Sequence
from itertools import permutations, product


def place_ranks(
    shape: Sequence[int], sizes: Sequence[int], per_node: int, rates: Sequence[int]
) -> list[int]:
    """Chooses a node for each rank.

    Args:
        shape: number of places on each axis of the mesh.
        sizes: for each axis, the bytes that a rank sends along it.
        per_node: number of ranks on each node; per_node · len(rates) is the number of ranks.
        rates: for each node, the bytes per second that can leave it.

    Returns:
        The node of each rank, as an int from 0.
    """
    raise NotImplementedError("place_ranks: the nodes")
