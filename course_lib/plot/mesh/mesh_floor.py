"""Where the nodes and ranks of a mesh are drawn: as cells with words, or, over 64, as squares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from course_lib.plot.mesh.mesh_groups import MeshGroups
from course_lib.plot.player import svg
from course_lib.plot.player.style import BLUE
from course_lib.trace import Refusal

LARGEST, MOST_NODES = 512, 128  # ranks and nodes that can be drawn
IN_WORDS = 64  # up to this many ranks, cells have words
LEFT, WIDE = 16.0, 500.0  # of the nodes' field


class Floor:
    """Rows of nodes, and in each its ranks.

    Args:
        mesh: who is where.
        top: upper edge of the first row.

    Attributes:
        worded: whether a rank is a cell with its number and place; else it is a square.
        side: width and height of a rank.

    Raises:
        Refusal: there are too many ranks or nodes.
    """

    def __init__(self, mesh: MeshGroups, top: float) -> None:
        if mesh.world > LARGEST or mesh.nodes > MOST_NODES:
            raise Refusal(
                f"a picture of {mesh.world} ranks on {mesh.nodes} nodes",
                f"room for {LARGEST} ranks on {MOST_NODES} nodes",
                "every rank must be large enough to be seen",
            )
        self.mesh, self.top = mesh, top
        self.worded = mesh.world <= IN_WORDS
        shared = min(mesh.per_node, mesh.world)
        self.line = min(shared, 8 if self.worded else 64)  # ranks side by side in a node
        self.lines = -(-shared // self.line)
        if self.worded:
            self.head, self.gap, self.pad = 19.0, 6.0, 5.0 if self.line > 2 else 3.0
            self.across = 1 if mesh.nodes <= 8 else max(1, 8 // self.line)
            free = WIDE - self.across * (2 * self.pad + self.gap)
            self.pitch = (min(88.0, free / (self.across * self.line)), 40.0)
        else:
            self.head, self.pad, self.gap, self.pitch = 29.0, 4.0, 4.0, (6.0, 15.0)
            self.across = max(1, min(8, int((WIDE + self.gap) / (self.wide + self.gap))))
        self.side = (self.pitch[0] - (3 if self.worded else 1), self.pitch[1] - 3)

    @property
    def wide(self) -> float:
        """Width of a node."""
        least = 0 if self.worded else 46
        return max(least, self.line * self.pitch[0]) + 2 * self.pad

    @property
    def tall(self) -> float:
        """Height of a node."""
        return self.head + self.lines * self.pitch[1] + self.pad - 1

    @property
    def right(self) -> float:
        """Right edge of the last node of a full row."""
        return self.corner(min(self.across, self.mesh.nodes) - 1)[0] + self.wide

    @property
    def foot(self) -> float:
        """Lower edge of the last row."""
        rows = -(-self.mesh.nodes // self.across)
        return self.top + rows * (self.tall + self.gap) - self.gap

    def corner(self, node: int) -> svg.Point:
        """Upper left corner of a node."""
        row, column = divmod(node, self.across)
        return LEFT + column * (self.wide + self.gap), self.top + row * (self.tall + self.gap)

    def cell(self, rank: int) -> svg.Point:
        """Upper left corner of a rank."""
        x, y = self.corner(self.mesh.node(rank))
        row, column = divmod(rank % self.mesh.per_node, self.line)
        over = (self.pitch[0] - self.side[0]) // 2
        return x + self.pad + over + column * self.pitch[0], y + self.head + row * self.pitch[1]

    # --- marks -------------------------------------------------------------------------------
    def nodes(self) -> str:
        """A box and a name for each node; without words in its cells also what they share."""
        boxes, names = [], []
        for node in range(self.mesh.nodes):
            x, y = self.corner(node)
            boxes.append(svg.box(x, y, self.wide, self.tall, kind="panel", radius=6))
            at = svg.number(x + (self.pad + 2 if self.worded else self.wide / 2))
            lines = [f"node {node}"] if self.worded else [f"node {node}", self._shared(node)]
            for words, below in zip(lines, (14, 25), strict=False):
                names.append(f'<text x="{at}" y="{svg.number(y + below)}">{words}</text>')
        look = 'font-size="11"' if self.worded else 'font-size="10" text-anchor="middle"'
        ranks = f'<path class="paper" d="{self._path(range(self.mesh.world))}"/>'
        return f'{"".join(boxes)}<g class="ink" {look}>{"".join(names)}</g>{ranks}'

    def _shared(self, node: int) -> str:
        """The coordinates that all ranks of a node have, with a star for those that differ."""
        places = [self.mesh.place(rank).values() for rank in self.mesh.members(node)]
        each = [set(values) for values in zip(*places, strict=True)]
        return "·".join(str(values.pop()) if len(values) == 1 else "∗" for values in each)

    def fills(self, colors: Mapping[int, str]) -> str:
        """Ranks by their colour: blue is full, any other is pale."""
        ranks: defaultdict[str, list[int]] = defaultdict(list)
        for rank, color in colors.items():
            ranks[color].append(rank)
        return "".join(
            f'<path fill="{color}"{pale(color)} d="{self._path(some)}"/>'
            for color, some in ranks.items()
        )

    def _path(self, ranks: Iterable[int]) -> str:
        """The cells of some ranks."""
        wide, tall = map(svg.number, self.side)
        corners = (map(svg.number, self.cell(rank)) for rank in ranks)
        return "".join(f"M{x} {y}h{wide}v{tall}h-{wide}z" for x, y in corners)

    def edges(self, nodes: Iterable[int]) -> str:
        """Lines round nodes."""
        return "".join(
            svg.box(*self.corner(node), self.wide, self.tall, kind="ink-edge", radius=6, edge=1.8)
            for node in sorted(nodes)
        )

    def ring(self, rank: int) -> str:
        """A line round one rank."""
        (x, y), (wide, tall) = self.cell(rank), self.side
        far, edge = (1.0, 2.4) if self.worded else (1.2, 1.4)
        return svg.box(
            x - far, y - far, wide + 2 * far, tall + 2 * far, kind="ink-edge", radius=2, edge=edge
        )


def pale(color: str) -> str:
    """What makes a colour pale, in both themes; blue stays as it is."""
    return "" if color == BLUE else ' fill-opacity="0.4"'
