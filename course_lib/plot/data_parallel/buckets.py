"""One backward of data parallelism, mark by mark: gradients become ready, buckets leave and arrive.

Paper: Li et al., "PyTorch Distributed" (2020), figure 4, redrawn from a record.
"""

from __future__ import annotations

from course_lib.plot.data_parallel.backward import Backward, Sent, read_backward
from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import BLUE, GREEN, ORANGE, format_bytes, text_on
from course_lib.plot.player.unveil import Columns, legend
from course_lib.trace import Timeline

STATES = {"not ready": "", "ready": ORANGE, "on the wire": BLUE, "arrived": GREEN}
LEFT, WIDE, CELL, TALL, HEAD = 16, 760, 91, 30, 17  # a cell is CELL by TALL, a bucket has a HEAD


def bucket_steps(timeline: Timeline, rank: int = 0) -> Player:
    """A player through the last recorded backward of BucketedDDP or OverlapDDP, one mark a frame.

    A cell is a parameter; cells stand in their bucket, in the order of backward. The lanes below
    show which all-reduces are under way beside the backward.

    Args:
        timeline: ledgers; that of `rank` has the marks `ready NAME`, `launch K: NAME, ...` and
            `arrived K`.
        rank: whose backward.

    Raises:
        Refusal: there are no such marks, or only those of half a backward.
    """
    story = read_backward(timeline.rank(rank))
    if not story.buckets:
        raise nothing_recorded(
            f"the buckets of a backward on rank {rank}",
            f"{len(story.ready)} marks `ready`, no mark `launch`",
        )
    drawing = BucketDrawing(story)
    frames = [drawing.frame(moment) for moment in range(len(story.marks) + 1)]
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        frames,
        title=f"gradients of one backward on rank {rank}, bucket by bucket",
        alt=_alt(story, rank),
        still=max(story.ready.values(), default=0),
    )


class BucketDrawing:
    """Where buckets, cells and lanes are.

    Args:
        story: the backward.
    """

    def __init__(self, story: Backward) -> None:
        self.story = story
        self.corners, foot = self._shelves()
        self.lane = max(5.0, min(17.0, 170 / len(story.buckets)))
        top, tall = foot + 40, 18 + self.lane * len(story.buckets)
        self.columns = Columns(LEFT + 116, top, WIDE - 116, tall, len(story.marks))
        self.size = (WIDE + 2 * LEFT, top + tall + 34)

    def _shelves(self) -> tuple[list[svg.Point], float]:
        """The corner of each bucket, side by side where they fit, and the lower end of all."""
        x, y, tall, corners = float(LEFT), 70.0, 0.0, []
        for bucket in self.story.buckets:
            wide, high = self._extent(bucket)
            if x + wide > LEFT + WIDE + 1:
                x, y, tall = float(LEFT), y + tall + 10, 0.0
            corners.append((x, y))
            x, tall = x + wide + 6, max(tall, high)
        return corners, y + tall

    def _extent(self, bucket: Sent) -> tuple[float, float]:
        """Width and height of a bucket."""
        many = len(bucket.names)
        return min(many, WIDE // CELL) * CELL + 4, HEAD + -(-many // (WIDE // CELL)) * TALL + 4

    def cells(self) -> list[tuple[str, Sent, svg.Point]]:
        """Every parameter with its bucket and the corner of its cell."""
        row = WIDE // CELL
        return [
            (name, bucket, (x + 3 + CELL * (i % row), y + HEAD + 1 + TALL * (i // row)))
            for bucket, (x, y) in zip(self.story.buckets, self.corners, strict=True)
            for i, name in enumerate(bucket.names)
        ]

    def places(self) -> list[svg.Point]:
        """Origins of the parts: the heading, the cells, the curtain over the lanes."""
        return [(LEFT, 24), *(corner for _, _, corner in self.cells()), (0, 0)]

    def background(self) -> str:
        """Buckets with their bytes, the legend, and the lanes as they are at the end."""
        out = [legend(STATES, LEFT, 52)]
        for number, (bucket, (x, y)) in enumerate(
            zip(self.story.buckets, self.corners, strict=True)
        ):
            wide, tall = self._extent(bucket)
            out.append(svg.box(x, y, wide, tall, kind="line-edge", edge=1.2))
            size = f" · {format_bytes(bucket.nbytes)}" if bucket.nbytes else ""
            name = "bucket " if len(bucket.names) > 1 else ""
            out.append(
                svg.text(x + 6, y + 13, f"{name}{number}{size}", size=11, anchor="start", bold=True)
            )
        return "".join(out) + self._lanes()

    def _lanes(self) -> str:
        """When gradients came, and below, when each bucket was under way."""
        columns, edge = self.columns, self.columns.left - 10
        title = "under way, in the order of the marks"
        out = [
            svg.text(LEFT, columns.top - 12, title, size=13, anchor="start", bold=True),
            svg.text(edge, columns.top + 9, "gradients ready", size=11, anchor="end"),
        ]
        out += [
            columns.bar(m, m + 1, columns.top, 11, fill=ORANGE) for m in self.story.ready.values()
        ]
        for number, bucket in enumerate(self.story.buckets):
            y = columns.top + 18 + number * self.lane
            out.append(columns.bar(bucket.launch, bucket.arrived, y, self.lane - 2, fill=BLUE))
            if self.lane >= 11 or number % 5 == 0:
                words = f"all-reduce {number}"
                out.append(svg.text(edge, y + self.lane / 2 + 3, words, size=11, anchor="end"))
        words = "one column a mark: order, not time"
        out.append(
            svg.text(columns.left, self.size[1] - 12, words, kind="soft", size=11, anchor="start")
        )
        return "".join(out)

    # --- what changes ------------------------------------------------------------------------
    def frame(self, moment: int) -> Frame:
        """The state after a mark; 0 is before the first."""
        words = "before the backward"
        if moment:
            kind, what = self.story.marks[moment - 1]
            said = {"ready": f"ready {what}", "launch": f"launch all-reduce {what}"}
            words = f"mark {moment} of {len(self.story.marks)} · " + said.get(
                kind, f"all-reduce {what} has arrived"
            )
        head = svg.text(0, 0, words, size=15, anchor="start", bold=True)
        cells = [
            _cell(name, self.story.state(name, bucket, moment)) for name, bucket, _ in self.cells()
        ]
        return Frame((head, *cells, self.columns.curtain(moment)), caption(self.story, moment))


def _cell(name: str, state: str) -> str:
    """A parameter in the colour of its state; a sign tells the state as well."""
    color = STATES[state]
    ink = text_on(color) if color else ""
    first, second = two_lines(name)
    out = [svg.box(0, 0, CELL - 2, TALL - 2, fill=color, kind="" if color else "panel")]
    for y, words in ((12, first), (23.5, second)):
        if words:
            out.append(svg.text(5, y, words, size=10, anchor="start", color=ink, kind="soft"))
    x = CELL - 19
    if state == "on the wire":
        out.append(svg.arrow([(x, 8), (x + 13, 8)], color=ink))
    if state == "arrived":
        out.append(svg.line([(x + 1, 8), (x + 5, 12), (x + 12, 4)], color=ink))
    return "".join(out)


def two_lines(name: str) -> tuple[str, str]:
    """`blocks.1` and `ffn.gate`: the module and the rest; what is too long is cut in the middle."""
    parts = name.removesuffix(".weight").split(".")
    cut = 2 if len(parts) > 2 and parts[1].isdigit() else 1
    return _short(".".join(parts[:cut]), 12), _short(".".join(parts[cut:]), 16)


def _short(words: str, most: int) -> str:
    half = most // 2
    return (
        words if len(words) <= most else f"{words[: most - half]}…{words[len(words) - half + 1 :]}"
    )


# --- words -------------------------------------------------------------------------------
def caption(story: Backward, moment: int) -> str:
    """What happens at a mark, and how far everything is after it."""
    if moment == 0:
        return (
            f"Before the backward: {_many(len(story.ready), 'gradient')} to come, in "
            f"{_many(len(story.buckets), 'bucket')}, one all-reduce each."
        )
    kind, what = story.marks[moment - 1]
    ready = sum(at <= moment for at in story.ready.values())
    flying = _many(story.flying(moment), "all-reduce")
    count = f"Ready: {ready} of {_many(len(story.ready), 'gradient')}; under way: {flying}."
    if kind == "ready":
        return f"The gradient of {what} is complete. {count}"
    if kind == "arrived":
        return f"All-reduce {what} has been waited for: its gradients are averaged. {count}"
    bucket = next(b for b in story.buckets if b.launch == moment)
    size = f", {format_bytes(bucket.nbytes)}," if bucket.nbytes else ""
    missing = sum(story.ready.get(name, moment + 1) > moment for name in bucket.names)
    lacks = f" {missing} of its gradients were never ready here." if missing else ""
    return f"Bucket {what} leaves: its all-reduce{size} begins.{lacks} {count}"


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _alt(story: Backward, rank: int) -> str:
    """The whole backward: when each bucket left and arrived."""
    last = max(story.ready.values(), default=0)
    ready, buckets = _many(len(story.ready), "gradient"), _many(len(story.buckets), "bucket")
    out = [
        f"One backward on rank {rank} in {len(story.marks)} marks: {ready} in {buckets}. "
        f"{story.early} of the all-reduces began before the last gradient was ready."
    ]
    for number, bucket in enumerate(story.buckets):
        before = sum(at < bucket.launch for at in story.ready.values())
        names = ", ".join(bucket.names[:3]) + (", ..." if bucket.names[3:] else "")
        end = f"arrived at mark {bucket.arrived}"
        if bucket.arrived > len(story.marks):
            end = "never arrived"
        out.append(
            f"Bucket {number} ({names}; {format_bytes(bucket.nbytes)}): launched at mark "
            f"{bucket.launch}, with {_many(before, 'gradient')} ready, {end}."
        )
    return " ".join([*out, f"The last gradient was ready at mark {last}."])
