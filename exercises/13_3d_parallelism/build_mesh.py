"""build_mesh: give each rank a place on five axes, and a group along each of them.

Notebook 13. When several parallelisms work together, the ranks are put on a grid, a *mesh*, with an
*axis* for each. From the outermost to the innermost the axes are

    pp   its ranks have different stages        cp   parts of the same sequences
    dp   replicas                               tp   parts of the same matrices
    ep   different experts

and the ranks are numbered like the digits of a clock: tp runs fastest, then cp, ep, dp, pp. With pp
2, dp 2 and tp 2 (ep and cp are 1, and not shown):

    rank    0  1  2  3  4  5  6  7
    pp      0  0  0  0  1  1  1  1
    dp      0  0  1  1  0  0  1  1
    tp      0  1  0  1  0  1  0  1

So the *tp line* of rank 5 is 4, 5: the rank itself and those that differ from it only in tp. Its dp
line is 5, 7, and its pp line is 1, 5. tp communicates most, twice per block and pass. Its ranks are
neighbours, so that they can be on one node, whose links are fast. Ranks are numbered node by node:
rank r is on node r // ranks_per_node.

Rules
- `sizes` names some of the five axes, in any order; only AXES says which is outer and which inner.
  An axis that is not named has size 1. Coordinates always have all five.
- The ranks of a line are in ascending order, so a rank's index in its group is its coordinate on
  that axis.
- `build_mesh` returns a group for each of the five axes, including those of size 1. Use
  `world.split(lines, axis)`: `lines` are *all* lines of the axis, lists of ranks that cover the
  world, and it returns the group of the line that holds this rank. It is collective: all ranks call
  it, for the same axes in the same order.
- `build_mesh` raises ValueError, before it makes a group, if
    - a name in `sizes` is not an axis: the message has the name;
    - a size is below 1: it has the size;
    - the product of the sizes is not the size of the world: it has both numbers;
    - the ranks of some tp line are on different nodes: it has "tp", its size and ranks_per_node.
  If one rank refuses, all must refuse; otherwise the others wait for it in `split` forever.

Your answer may use `comm.Group` of `course_lib`.
"""

import math
from collections.abc import Mapping

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Returns a rank's place on the mesh: its coordinate on each of the five axes, from 0."""
    raise NotImplementedError("build_mesh: from a rank to its place")


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Returns the rank at a place, a dict of all five axes in any order; inverts `coordinates`."""
    raise NotImplementedError("build_mesh: from a place to its rank")


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    """Returns the line of `rank` on `axis`: itself and all ranks that differ only in that axis."""
    raise NotImplementedError("build_mesh: a line")


def build_mesh(world: Group, sizes: Mapping[str, int], ranks_per_node: int) -> dict[str, Group]:
    """Returns this rank's group on each of the five axes; collective.

    Args:
        world: all ranks; each rank's index in it is its rank.
        sizes: of the axes; their product is the size of the world.
        ranks_per_node: how many ranks each node has.

    Raises:
        ValueError: the sizes do not fit, or a tp line is not on one node.
    """
    raise NotImplementedError("build_mesh: refuse what does not fit, then make the groups")
