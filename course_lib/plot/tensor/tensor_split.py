"""A feed-forward block on several ranks: columns, then rows, then one sum; and the way back.

Paper: Shoeybi et al., "Megatron-LM" (2019), figure 3a, with sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, format_bytes, rank_color, text_on
from course_lib.plot.tensor.split_sums import Split, format_flop, many_of
from course_lib.trace import Refusal

LEFT, GAP, CARD, TALL, TOP = 20, 30, 6, 220, 78
WHOLE, COLUMNS, ROWS, PARTS, EMPTY = "whole", "columns", "rows", "parts", "empty"


@dataclass(frozen=True)
class SplitFrame:
    """One frame: how the matrices are, and what has been computed and sent until then.

    Attributes:
        words: the heading.
        looks: of X, A, Z, B and O: how each is cut.
        names: what is written over each.
        products: products with A's or B's size that are done.
        sums: all-reduces that are done.
        back: whether it goes backwards.
    """

    words: str
    looks: tuple[str, str, str, str, str]
    names: tuple[str, str, str, str, str]
    products: int
    sums: int
    back: bool = False


UNCUT = (WHOLE,) * 5
STEPS = (
    SplitFrame("One device: two products",
               UNCUT, ("X", "A", "Z = GeLU(X·A)", "B", "O = Z·B"), 0, 0),
    SplitFrame("Cut: A by columns, B by rows; f hands X to all",
               (WHOLE, COLUMNS, EMPTY, ROWS, EMPTY), ("X", "A", "", "B", ""), 0, 0),
    SplitFrame("First product: each rank its columns of Y",
               (WHOLE, COLUMNS, COLUMNS, ROWS, EMPTY), ("X", "A", "Y = X·A", "B", ""), 1, 0),
    SplitFrame("Activation: each rank on its own columns",
               (WHOLE, COLUMNS, COLUMNS, ROWS, EMPTY), ("X", "A", "Z = GeLU(Y)", "B", ""), 1, 0),
    SplitFrame("Second product: each rank a partial sum of O",
               (WHOLE, COLUMNS, COLUMNS, ROWS, PARTS), ("X", "A", "Z", "B", "parts of O"), 2, 0),
    SplitFrame("g: one all-reduce adds the parts",
               (WHOLE, COLUMNS, COLUMNS, ROWS, WHOLE), ("X", "A", "Z", "B", "O = sum"), 2, 1),
    SplitFrame("Backward: g hands dO on; dZ and dB on each rank",
               (WHOLE, COLUMNS, COLUMNS, ROWS, WHOLE),
               ("X", "A", "dZ = dO·Bᵀ", "B, dB", "dO"), 4, 1, True),
    SplitFrame("Through the activation; dA, and a part of dX",
               (PARTS, COLUMNS, COLUMNS, ROWS, WHOLE),
               ("parts of dX", "A, dA", "dY", "B, dB", "dO"), 6, 1, True),
    SplitFrame("f: one all-reduce adds the parts of dX",
               (WHOLE, COLUMNS, COLUMNS, ROWS, WHOLE),
               ("dX = sum", "A, dA", "dY", "B, dB", "dO"), 6, 2, True),
)  # fmt: skip


def tensor_split_steps(
    token_count: int, hidden: int, ffn: int, ranks: int = 4, item: int = 4
) -> Player:
    """A player of O = GeLU(X·A)·B on several ranks, forward and backward.

    Args:
        token_count: rows of X, batch times sequence.
        hidden: columns of X.
        ffn: columns of A; if `ranks` does not divide it, the first ranks have one more.
        ranks: of the tensor-parallel group, 8 at most.
        item: bytes of an element.

    Raises:
        Refusal: a size is below 1, there are more ranks than columns of A, or more than 8.
    """
    if ranks > 8:
        raise Refusal(
            f"a picture of {ranks} ranks",
            "room for 8",
            "a strip for each rank must be wide enough to be seen",
        )
    drawing = SplitDrawing(Split(token_count, hidden, ffn, ranks, item))
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        [drawing.frame(number) for number in range(len(STEPS))],
        title=f"a feed-forward block on {ranks} rank{'s' * (ranks > 1)}",
        alt=drawing.alt(),
        still=5,
    )


class SplitDrawing:
    """Where matrices and rows of the table are.

    Args:
        split: the shapes.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self.fan = CARD * (split.ranks - 1)  # room for partial sums, behind each other
        room = 800 - 2 * LEFT - 4 * GAP - 2 * self.fan
        pixel = min(
            room / (3 * split.hidden + 2 * split.ffn), TALL / max(split.ffn, split.token_count)
        )
        self.side = {
            "T": _within(split.token_count * pixel, TALL),
            "H": _within(split.hidden * pixel, TALL),
            "F": _within(split.ffn * pixel, TALL),
        }
        self.shapes = ("TH", "HF", "TF", "FH", "TH")
        self.middle = TOP + max(self.side.values()) / 2 + self.fan / 2
        self.table = self.middle + max(self.side.values()) / 2 + self.fan / 2 + 54
        self.size = (800, self.table + 22 * (split.ranks + 1) + 2)

    def corners(self) -> list[svg.Point]:
        """The upper left corners of the five matrices."""
        wide = [self.side[shape[1]] for shape in self.shapes]
        fans = [self.fan, 0, 0, 0, self.fan]
        x = (800 - sum(wide) - sum(fans) - 4 * GAP) / 2
        out = []
        for shape, width, fan in zip(self.shapes, wide, fans, strict=True):
            out.append((x, self.middle - self.side[shape[0]] / 2))
            x += width + fan + GAP
        return out

    def places(self) -> list[svg.Point]:
        """Origins of the parts: heading, signs, matrices, rows of the table."""
        rows = [(LEFT, self.table + 22 * row) for row in range(self.split.ranks + 1)]
        return [(LEFT, 24), (0, self.middle), *self.corners(), *rows]

    def background(self) -> str:
        """Shapes below the matrices, and the head of the table."""
        split, out = self.split, []
        count = {"T": split.token_count, "H": split.hidden, "F": split.ffn}
        for (x, y), shape in zip(self.corners(), self.shapes, strict=True):
            middle, foot = x + self.side[shape[1]] / 2, y + self.side[shape[0]] + 15
            words = f"{count[shape[0]]}×{count[shape[1]]}"
            out.append(
                svg.text(middle, foot + self.fan * (shape == "TH"), words, kind="soft", size=11)
            )
        heads = ("A and B kept", "each of Y, Z", "products so far", "sent so far")
        for x, words in zip(COLUMN, heads, strict=True):
            out.append(
                svg.text(LEFT + x, self.table - 16, words, kind="soft", size=11, anchor="start")
            )
        return "".join(out)

    # --- what changes ------------------------------------------------------------------------
    def frame(self, number: int) -> Frame:
        """One step."""
        step = STEPS[number]
        head = svg.text(0, 0, f"{number + 1}. {step.words}", size=15, anchor="start", bold=True)
        matrices = [
            self._matrix(shape, look, name)
            for shape, look, name in zip(self.shapes, step.looks, step.names, strict=True)
        ]
        parts = (head, self._signs(step), *matrices, *self._rows(step))
        return Frame(parts, self.caption(number))

    def _signs(self, step: SplitFrame) -> str:
        """X · A = Z · B = O, or arrows that go back; f and g, in a capsule when they sum."""
        out, corners = [], self.corners()
        gaps = [corner[0] - GAP / 2 for corner in corners[1:]]
        for x, sign in zip(gaps, "·=·=", strict=True):
            arrow = svg.arrow([(x + 10, 0), (x - 10, 0)])
            out.append(arrow if step.back else svg.text(x, 6, sign, size=20))
        if step is not STEPS[0]:
            for x, name in ((gaps[0], "f"), (gaps[-1], "g")):
                plain = svg.text(x, -24, name, size=14, bold=True)
                busy = svg.pill(x, -28, name, VERMILLION, text_on(VERMILLION), 26)
                out.append(busy if step.words.startswith(f"{name}:") else plain)
        return "".join(out)

    def _matrix(self, shape: str, look: str, name: str) -> str:
        """A matrix and its name over it."""
        tall, wide = (self.side[letter] for letter in shape)
        out = [svg.text(wide / 2, -8, name, size=12.5, bold=True)] if name else []
        if look == PARTS:
            for rank in range(self.split.ranks):
                place = (CARD * rank, CARD * rank, wide - 0.8, tall - 0.8)
                out.append(svg.box(*place, fill=rank_color(rank), radius=2))
                out.append(svg.box(*place, kind="line-edge", edge=1, radius=2))
        elif look in (COLUMNS, ROWS):
            out += self._strips(wide, tall, look)
        else:
            kind = "panel" if look == WHOLE else "paper"
            out.append(svg.box(0, 0, wide, tall, kind=kind, radius=2))
            out.append(svg.box(0, 0, wide, tall, kind="line-edge", edge=1.5, radius=2))
        return "".join(out)

    def _strips(self, wide: float, tall: float, look: str) -> list[str]:
        """One strip a rank, as broad as its share."""
        out, done = [], 0.0
        for rank, count in enumerate(self.split.columns):
            share = count / self.split.ffn
            if look == COLUMNS:
                out.append(_strip(done * wide, 0, share * wide, tall, rank))
            else:
                out.append(_strip(0, done * tall, wide, share * tall, rank))
            done += share
        return out

    def _rows(self, step: SplitFrame) -> list[str]:
        """The table: what one device would hold and compute, and each rank does."""
        split = self.split
        words = "one device"
        one = svg.text(0, 4, words, size=12, anchor="start", bold=True)
        rows = [one + _cells(split, split.ffn, step.products, 0)]
        if step is STEPS[0]:
            return rows + [""] * split.ranks
        for rank, columns in enumerate(split.columns):
            color = rank_color(rank)
            pill = svg.pill(28, 0, f"rank {rank}", color, text_on(color))
            rows.append(pill + _cells(split, columns, step.products, step.sums * split.sent(rank)))
        return rows

    # --- words -------------------------------------------------------------------------------
    def caption(self, number: int) -> str:
        """What happens, why so, and what it costs."""
        split, columns = self.split, self.split.columns
        mine = many_of([str(count) for count in columns])
        flop = many_of([format_flop(split.product(count)) for count in columns])
        sent = many_of([format_bytes(split.sent(rank)) for rank in range(split.ranks)])
        whole, inner = format_bytes(split.payload), format_bytes(split.inner(split.ffn))
        return (
            f"One device keeps A and B, {format_bytes(split.weights(split.ffn))}, and computes two "
            f"products of {format_flop(split.product(split.ffn))} each.",
            f"Rank r keeps {mine} columns of A and the same rows of B. X, {whole}, is on every "
            "rank: forward, f only hands it on, and nothing is sent.",
            f"X times some columns of A is those columns of Y: {flop} a rank, nothing is sent.",
            "GeLU works on each number alone, so GeLU(X·A) has columns GeLU(X·A_r). That is why A "
            "is cut by columns: by rows, each rank would have a part of a sum, GeLU of a sum is "
            f"not the sum of GeLUs, and Y, {inner}, would have to be summed here.",
            f"Z's columns meet B's rows: each rank has {flop} to compute, and gets a matrix as "
            "large as O, of which the true one is the sum over ranks.",
            f"g: an all-reduce of {whole}; each rank sends 2(N-1)/N of it, {sent}. Now O is whole "
            "on every rank, as X was. It is the only message of the forward.",
            "Backward: dO is equal on all ranks, and g hands it on. Each rank computes dZ_r = "
            "dO·B_rᵀ and dB_r = Z_rᵀ·dO from what it has; nothing is sent.",
            "dY_r = dZ_r·GeLU'(Y_r) and dA_r = Xᵀ·dY_r stay on their rank. dX is the sum of all "
            "dY_r·A_rᵀ, and each rank has one term.",
            f"f: an all-reduce of {whole}, again {sent} sent by each rank. f is the identity "
            "forward and a sum backward, g the reverse. The gradients of A and B stay cut.",
        )[number]

    def alt(self) -> str:
        """The shapes, and all steps with their numbers."""
        split = self.split
        head = (
            f"O = GeLU(X·A)·B with X of {split.token_count}×{split.hidden}, A of "
            f"{split.hidden}×{split.ffn} and B of {split.ffn}×{split.hidden}, {split.item} bytes "
            f"an element, on {split.ranks} ranks: A is cut by columns, B by rows."
        )
        return " ".join([head, *(self.caption(number) for number in range(len(STEPS)))])


COLUMN = (96, 250, 420, 590)  # of the table, from LEFT


def _cells(split: Split, columns: int, products: int, sent: int) -> str:
    """The numbers of a row."""
    values = (
        format_bytes(split.weights(columns)),
        format_bytes(split.inner(columns)),
        format_flop(products * split.product(columns)),
        format_bytes(sent),
    )
    return "".join(
        svg.text(x, 4, value, size=12, anchor="start")
        for x, value in zip(COLUMN, values, strict=True)
    )


def _strip(x: float, y: float, wide: float, tall: float, rank: int) -> str:
    """A rank's part, with its number where there is room."""
    color = rank_color(rank)
    out = svg.box(x, y, wide - 0.8, tall - 0.8, fill=color, radius=2)
    if min(wide, tall) > 13:
        out += svg.text(
            x + wide / 2, y + tall / 2 + 4, str(rank), size=12, color=text_on(color), bold=True
        )
    return out


def _within(pixels: float, most: float) -> float:
    """A side that can be seen and fits."""
    return max(48.0, min(most, pixels))
