"""A mesh, axis by axis: whose group is where, how far apart its ranks are, and what they send.

Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021), section 3: tensor parallelism stays inside a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from course_lib.plot.mesh.axis_bytes import ByteBars, Place, bar_legend, byte_words, label_width
from course_lib.plot.mesh.mesh_floor import LEFT, Floor, pale
from course_lib.plot.mesh.mesh_groups import Axes, Group, MeshGroups, by_axes, label, shape_words
from course_lib.plot.mesh.mesh_words import caption, facts, first_caption, first_facts, heading
from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from course_lib.trace import Refusal

TOP, FACTS, RIGHT = 92.0, 105.0, 800.0  # upper edge of nodes, first line of facts, right edge
VALUES, LINE = 64.0, 16.0  # of the facts: how far in values are, and the height of a line
ASIDE = 8.5  # how far to the right a rank's number makes room for that of its group
OTHERS = (ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW, GREY)  # blue is the chosen group's


def mesh_explorer(
    sizes: Mapping[str, int],
    ranks_per_node: int = 8,
    bytes_by_axis: Mapping[str, float] | None = None,
    rank: int = 0,
) -> Player:
    """A player with a frame for each axis of a mesh, innermost first, and for axes together.

    Every rank is drawn, node by node; up to 64 with their number and coordinates, up to 512 as
    squares. In each frame the group of one rank is blue, with the nodes that it is on outlined; the
    other groups are pale. Axes together: those over which gradients are averaged, and all that are
    named in `bytes_by_axis`.

    Args:
        sizes: axis name to size, outermost first, as a `Mesh` is made with.
        ranks_per_node: how many neighbouring ranks share a node.
        bytes_by_axis: bytes that a rank sends in a step (the mean over all ranks), by the axis's
            name as the ledger has it: `tp`, `dp_ep_cp`. Drawn as `split_bytes` splits them.
        rank: whose groups are lit.

    Raises:
        Refusal: there are too many ranks, there is no such rank or axis, or a size is below 1.
    """
    mesh = MeshGroups(sizes, ranks_per_node)
    if not 0 <= rank < mesh.world:
        raise Refusal(
            f"the groups of rank {rank}",
            f"a mesh of {shape_words(sizes)}",
            f"its ranks are 0 to {mesh.world - 1}",
        )
    drawing = MeshDrawing(mesh, rank, by_axes(bytes_by_axis or {}, mesh))
    frames = [drawing.first(), *map(drawing.frame, drawing.axes)]
    return drawing.player(frames, still=min(1, len(drawing.axes)))


class MeshDrawing:
    """The nodes at the left, facts and bytes at the right.

    Args:
        mesh: who is where.
        rank: whose groups are lit.
        sent: bytes inside a node and between nodes, by axes.
    """

    def __init__(
        self, mesh: MeshGroups, rank: int, sent: Mapping[Axes, tuple[float, float]]
    ) -> None:
        self.mesh, self.rank, self.sent = mesh, rank, sent
        self.floor = Floor(mesh, TOP)
        single = [(axis,) for axis in reversed(mesh.sizes)]
        self.axes = list(dict.fromkeys((*single, *mesh.combinations(), *sent)))
        self.left = self.floor.right + 24
        deep = max((len(self._lines(axes)) for axes in self.axes), default=3)
        foot = FACTS + deep * LINE
        self.bars = self._bars(foot) if any(map(any, sent.values())) else None
        foot = self.bars.foot if self.bars else foot
        self.size = (RIGHT, max(self.floor.foot, foot) + 14)

    def _bars(self, foot: float) -> ByteBars:
        """Bars under the facts, or under all if the nodes end there too."""
        names = {label(axes, self.mesh): both for axes, both in self.sent.items()}
        below = self.floor.foot < foot + 80
        left = LEFT if below else self.left
        top = max(foot, self.floor.foot) + 70 if below else foot + 66
        return ByteBars(names, Place(left, top, RIGHT - 16 - left, label_width(names)))

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """Nodes, what the marks mean, and the bytes of all axes."""
        out = [self._legend(), self.floor.nodes()]
        if self.bars:
            x, y = self.bars.place.left, self.bars.place.top
            across = x == LEFT
            head, up = "A rank sends in a step (mean)", 36 if across else 46
            out.append(svg.text(x, y - up, head, size=13, anchor="start", bold=True))
            out += [bar_legend(x, y - (14 if across else 26), across), self.bars.draw()]
        return "".join(out)

    def _legend(self) -> str:
        """What is in a cell, and what the colours are."""
        order = "·".join(self.mesh.sizes) or "none"
        words = f"a square is a rank; under a node's number: {order}, ∗ where they differ"
        if self.floor.worded:
            words = f"in a cell: number of its group, rank, coordinates {order}"
        out, y = [svg.text(LEFT, 50, words, size=11.5, anchor="start")], 72
        marks = (f"group of rank {self.rank}", BLUE), ("other groups, faint", ORANGE)
        for x, (words, color) in zip((LEFT, LEFT + 150), marks, strict=True):
            square = f"M{svg.number(x)} {y - 10}h13v13h-13z"
            out.append(f'<path fill="{color}"{pale(color)} d="{square}"/>')
            out.append(svg.text(x + 19, y + 1, words, size=11.5, anchor="start"))
        out.append(svg.box(LEFT + 300, y - 10, 13, 13, kind="ink-edge", radius=3, edge=1.8))
        words = "outlined: that rank, and the nodes of its group"
        out.append(svg.text(LEFT + 319, y + 1, words, size=11.5, anchor="start"))
        return "".join(out)

    # --- frames ------------------------------------------------------------------------------
    def first(self) -> Frame:
        """All ranks and their places."""
        marks = self.floor.fills({self.rank: BLUE}) + self.floor.ring(self.rank)
        words = self._words((self.rank,), ())
        head = svg.text(
            0, 0, "Every rank has a place on the mesh", size=15, anchor="start", bold=True
        )
        told = self._facts(_wrapped(first_facts(self.rank, self.mesh)))
        return Frame((head, marks, words, told, ""), first_caption(self.rank, self.mesh))

    def frame(self, axes: Axes) -> Frame:
        """The groups along some axes."""
        groups = self.mesh.groups(axes)
        mine = next(group for group in groups if self.rank in group)
        rest = [group for group in groups if group is not mine]
        colors = {
            rank: OTHERS[number % len(OTHERS)]
            for number, group in enumerate(rest)
            for rank in group
        } | dict.fromkeys(mine, BLUE)
        edges = self.floor.edges({self.mesh.node(rank) for rank in mine})
        marks = edges + self.floor.fills(colors) + self.floor.ring(self.rank)
        head = svg.text(0, 0, heading(axes, self.mesh), size=15, anchor="start", bold=True)
        told = self._facts(self._lines(axes))
        words = self._words(mine, groups)
        said = caption(axes, self.rank, self.mesh, self.sent.get(axes))
        return Frame((head, marks, words, told, self._pointer(axes)), said)

    def _lines(self, axes: Axes) -> list[tuple[str, str]]:
        return _wrapped(facts(axes, self.rank, self.mesh))

    def _facts(self, lines: list[tuple[str, str]]) -> str:
        """Names in grey and their values, line by line."""
        out = []
        for number, (name, value) in enumerate(lines):
            y = LINE * number
            if name:
                out.append(svg.text(0, y, name, kind="soft", anchor="start"))
            out.append(svg.text(VALUES, y, value, anchor="start"))
        return "".join(out)

    def _words(self, lit: Group, groups: Sequence[Group]) -> str:
        """Numbers and places of all ranks, white where they are lit, and the groups' numbers."""
        if not self.floor.worded:
            return ""
        dark = [rank for rank in range(self.mesh.world) if rank not in lit]
        tags = {rank: f"g{n}" for n, group in enumerate(groups) for rank in group}
        return self._cells(lit, tags, 'fill="#fff"') + self._cells(dark, tags, 'class="ink"')

    def _cells(self, ranks: Sequence[int], tags: Mapping[int, str], look: str) -> str:
        """The words of some cells, all in one colour."""
        wide, big, small, tag = self.floor.side[0], [], [], []
        for rank in ranks:
            x, y = self.floor.cell(rank)
            middle = svg.number(x + wide / 2 + (ASIDE if tags else 0))
            place = "·".join(map(str, self.mesh.place(rank).values()))
            big.append(f'<text x="{middle}" y="{svg.number(y + 16)}">{rank}</text>')
            small.append(
                f'<text x="{svg.number(x + wide / 2)}" y="{svg.number(y + 31)}">{place}</text>'
            )
            if rank in tags:
                tag.append(
                    f'<text x="{svg.number(x + 3)}" y="{svg.number(y + 14)}">{tags[rank]}</text>'
                )
        return (
            f'<g {look} text-anchor="middle"><g font-size="13.5" font-weight="600">'
            f'{"".join(big)}</g><g font-size="11">{"".join(small)}</g></g>'
            f'<g {look} font-size="10">{"".join(tag)}</g>'
        )

    def _pointer(self, axes: Axes) -> str:
        """A line round the bytes of these axes."""
        if not self.bars or axes not in self.sent:
            return ""
        y, place = self.bars.row(label(axes, self.mesh)), self.bars.place
        return svg.box(place.left - 5, y, place.width + 9, 36, kind="ink-edge", edge=1.8)

    def player(self, frames: list[Frame], still: int = 0) -> Player:
        """These frames on this background."""
        return Player(
            self.size,
            self.background(),
            [(16, 26), (0, 0), (0, 0), (self.left, FACTS), (0, 0)],
            frames,
            title=f"mesh of {shape_words(self.mesh.sizes) or '1 rank'}",
            alt=self.alt(frames),
            still=still,
        )

    def alt(self, frames: list[Frame]) -> str:
        """All captions, and the bytes of every axis."""
        said = " ".join(frame.caption for frame in frames)
        if not self.bars:
            return said
        return f"{said} In a step a rank sends, on average: {byte_words(self.bars.sent)}"


def _wrapped(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names and values in lines; the name is on the first of its value."""
    return [
        ("" if number else name, line)
        for name, value in pairs
        for number, line in enumerate(wrap(value, 29) or [""])
    ]
