"""Where the ranks sit: nodes, ranks in them, and the groups of one mesh axis lit up.

Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021): tensor parallelism stays inside a node, the rest goes over the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from course_lib.plot.mesh.mesh_groups import MeshGroups
from course_lib.plot.player import svg
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import RANK_COLORS, rank_color, text_on
from course_lib.trace import Refusal

LEFT, TOP, SIDE, STEP = 78, 46, 32, 60  # a rank is a square of SIDE, one every STEP pixels
TALL, ROW = 74, 88  # a node is TALL, one every ROW pixels


def topology(
    groups: Sequence[Sequence[int]], ranks_per_node: int, title: str = "groups"
) -> Picture:
    """Nodes in rows, ranks in columns, and groups of ranks linked; a group wears one colour.

    Groups are coloured like their first rank; in worlds over 8 ranks, one after the other. Members
    are linked in order, as on a ring: a thick link stays inside a node, a thin one goes over the
    network.

    Args:
        groups: disjoint lists of global ranks that cover 0 .. world - 1.
        ranks_per_node: how many neighbouring ranks share a node.
        title: what the groups are, for the heading.

    Raises:
        Refusal: the groups do not cover the ranks, or overlap.
    """
    cluster = Cluster(_count(groups), ranks_per_node)
    alt = f"{title}: {_words(groups, ranks_per_node)}"
    body = cluster.nodes() + svg.text(LEFT, 22, title, size=15, anchor="start", bold=True)
    drawing = svg.document(*cluster.size, body + cluster.lit(groups), alt)
    return Picture(drawing, alt, title)


def mesh_axes(sizes: Mapping[str, int], ranks_per_node: int) -> Player:
    """A player with one frame for each axis of a mesh: the groups of that axis lit up.

    Args:
        sizes: axis name to size, outermost first, as a `Mesh` is made with.
        ranks_per_node: how many neighbouring ranks share a node.
    """
    cluster = Cluster(math.prod(sizes.values()), ranks_per_node)
    shape = " × ".join(f"{axis} {size}" for axis, size in sizes.items())
    frames = []
    for axis in sizes:
        groups = lines(axis, sizes)
        heading = svg.text(0, 0, f"groups of axis {axis}", size=15, anchor="start", bold=True)
        caption = f"Axis {axis}: {_words(groups, ranks_per_node)}"
        frames.append(Frame((heading, cluster.lit(groups)), caption))
    return Player(
        cluster.size,
        cluster.nodes(),
        [(LEFT, 22), (0, 0)],
        frames,
        title=f"mesh of {shape}",
        alt=f"A mesh of {shape} on nodes of {ranks_per_node} ranks. "
        + " ".join(frame.caption for frame in frames),
        still=len(frames) - 1,
    )


def lines(axis: str, sizes: Mapping[str, int]) -> list[list[int]]:
    """The groups of one axis: ranks that differ in that coordinate alone; the last runs fastest."""
    return [list(group) for group in MeshGroups(sizes, 1).groups((axis,))]


class Cluster:
    """Where each rank is drawn.

    Args:
        world: how many ranks there are.
        per_node: how many share a node.
    """

    def __init__(self, world: int, per_node: int) -> None:
        self.world = world
        self.per_node = per_node
        self.rows = -(-world // per_node)
        wide = min(world, per_node)
        self.size = (max(330, LEFT + wide * STEP + 24), TOP + self.rows * ROW)

    def center(self, rank: int) -> svg.Point:
        """The middle of a rank's square."""
        row, column = divmod(rank, self.per_node)
        return LEFT + (column + 0.5) * STEP, TOP + TALL / 2 + row * ROW

    def nodes(self) -> str:
        """A box and a name for each node."""
        out, wide = [], min(self.world, self.per_node) * STEP
        for row in range(self.rows):
            y = TOP + row * ROW
            out.append(svg.box(LEFT, y, wide, TALL, kind="panel", radius=8))
            out.append(svg.text(LEFT - 12, y + TALL / 2 + 4, f"node {row}", anchor="end"))
        return "".join(out)

    def lit(self, groups: Sequence[Sequence[int]]) -> str:
        """All groups: links first, then the ranks over them."""
        links, ranks = [], []
        for number, group in enumerate(groups):
            color = rank_color(min(group) if self.world <= len(RANK_COLORS) else number)
            pairs = zip(group, group[1:], strict=False)
            links += [self._link(a, b, color, number) for a, b in pairs]
            ranks += [self._rank(rank, color) for rank in group]
        return "".join(links + ranks)

    def _rank(self, rank: int, color: str) -> str:
        x, y = self.center(rank)
        square = svg.box(x - SIDE / 2, y - SIDE / 2, SIDE, SIDE, fill=color, radius=7)
        return square + svg.text(x, y + 5, str(rank), size=14, color=text_on(color), bold=True)

    def _link(self, a: int, b: int, color: str, number: int) -> str:
        """A link between two ranks; bent past the ranks that lie between them."""
        (x0, y0), (x1, y1) = self.center(a), self.center(b)
        inside = a // self.per_node == b // self.per_node
        far = abs(x1 - x0) > STEP or abs(y1 - y0) > ROW
        # Groups that pass the same ranks get one of four lanes each: near and far, on both sides.
        lane = (SIDE / 2 + (5, 5, 12, 12)[number % 4]) * (-1, 1, -1, 1)[number % 4]
        across = SIDE / 2 + 5 + 4 * (a // self.per_node % 5)
        points = [(x0, y0), (x1, y1)]
        if far and (inside or x0 == x1):
            bend = (0, lane) if inside else (across, 0)
            points[1:1] = [(x + bend[0], y + bend[1]) for x, y in points]
        return svg.line(points, color=color, width=5 if inside else 2)


def _count(groups: Sequence[Sequence[int]]) -> int:
    """How many ranks the groups cover."""
    flat = sorted(rank for group in groups for rank in group)
    if not flat or flat != list(range(len(flat))):
        raise Refusal(
            f"a picture of {len(groups)} groups",
            f"the ranks {flat}",
            "every rank from 0 on is in exactly one group",
        )
    return len(flat)


def _words(groups: Sequence[Sequence[int]], per_node: int) -> str:
    """The groups in a sentence or two."""
    few = 4 if len(groups) * len(groups[0]) > 16 else 8
    named = "; ".join(_members(group) for group in groups[:few])
    named += f"; and {len(groups) - few} more" if groups[few:] else ""
    across = sum(len({rank // per_node for rank in group}) > 1 for group in groups)
    where = {0: "all inside a node", len(groups): "all across nodes"}.get(
        across, f"{across} across nodes"
    )
    many = f"{len(groups)} group{'s' if len(groups) > 1 else ''}"
    return f"{many} of {len(groups[0])}, {where}: ranks {named}."


def _members(group: Sequence[int]) -> str:
    """`0, 4, 8`, or `0–7` for neighbours."""
    if len(group) > 2 and list(group) == list(range(group[0], group[-1] + 1)):
        return f"{group[0]}–{group[-1]}"
    return ", ".join(map(str, group))
