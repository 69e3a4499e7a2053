"""Who writes which bytes of a checkpoint, and who reads them: from ranks to files and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from course_lib.plot.checkpoint.checkpoint_parts import (
    StoredPart,
    Story,
    TensorPart,
    WholeTensor,
    check_story,
    stretches,
)
from course_lib.plot.checkpoint.checkpoint_words import captions, describe, name_and_size, titles
from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import format_bytes, rank_color, text_on

LEFT, TOP, HEAD = 16, 84, 54  # HEAD: middle of the columns' heads
ROW, TALL, LEAST = 36, 28, 22  # of a tensor; its rectangle's height, and least width
FILE, BAR, FINE = 50, 20, 8  # of a file; its bar's height; least distance of stretches in it
HELD, WRITTEN, FILES, MANIFEST, WANTED = range(5)  # frames; later ones are ranks that read

Box = tuple[float, float, float, float]  # x, y, width, height


def checkpoint_map(
    tensors: Mapping[str, WholeTensor],
    held: Sequence[TensorPart],
    stored: Sequence[StoredPart],
    wanted: Sequence[TensorPart],
    manifest: int,
) -> Player:
    """A player from what ranks hold, over the files of a checkpoint, to what other ranks read.

    A tensor is a rectangle, as wide as it has bytes; its last dim goes to the right and all others
    down, so that a cut of columns is a vertical strip. What is drawn as read are the bytes that a
    rank needs; the reader of the course fetches the whole blocks of 1 MiB that they lie in. Of
    stretches that are too fine to be seen some are drawn as one; the caption has their number.

    Args:
        tensors: all of them by name; 1 to 12.
        held: what each rank has that saves, replicas too; 1 to 6 ranks.
        stored: what is in which file, and who wrote it.
        wanted: what each rank is to have that loads; 1 to 6 ranks.
        manifest: bytes of the manifest.

    Raises:
        Refusal: a part lies outside its tensor, the files do not hold every element exactly
            once, or there is too much to be drawn.
    """
    story = Story(tensors, held, stored, wanted, manifest)
    check_story(story)
    drawing = CheckpointDrawing(story)
    said = zip(titles(story), captions(story), strict=True)
    frames = [drawing.frame(number, *words) for number, words in enumerate(said)]
    title = f"a checkpoint, saved by {len(story.savers)} ranks, loaded by {len(story.loaders)}"
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        frames,
        title=title,
        alt=describe(story),
        still=MANIFEST,
    )


class CheckpointDrawing:
    """Where tensors, ranks and files are.

    Args:
        story: the checkpoint.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.labels = [name_and_size(story, name) for name in story.tensors]
        longest = max(len(words) for label in self.labels for words in label)
        self.names = 34 + 6.6 * max(20, longest)
        self.ranks = max(len(story.savers), len(story.loaders))  # for which there are columns
        self.pitch = max(94.0, min(150.0, (788 - self.names) / (1 + self.ranks)))
        right = self.x(1 + self.ranks)
        self.disk = TOP + ROW * len(story.tensors) + 20
        self.size = (right, self.file(len(story.files)) + BAR + 16)
        self.most = max(tensor.size for tensor in story.tensors.values())
        self.byte = (right - LEFT - self.names - 48) / max(1, *story.files.values())
        self.number = {name: i + 1 for i, name in enumerate(story.tensors)}

    def places(self) -> list[svg.Point]:
        """Origins of the parts: two of each column, the headings, four of each file, manifest."""
        files = [(self.bars, self.file(i)) for i in range(len(self.story.files)) for _ in range(4)]
        files.append((self.bars, self.file(len(self.story.files))))
        columns = [(self.x(column), 0.0) for column in range(1 + self.ranks)]
        return [*columns, *columns, (LEFT, 24), (LEFT, self.disk), *files]

    @property
    def bars(self) -> float:
        """Left edge of the files' bars."""
        return LEFT + self.names

    def x(self, column: int) -> float:
        """Left edge of a column; the first one has the whole tensors."""
        return LEFT + self.names + self.pitch * column

    def file(self, number: int) -> float:
        """Upper edge of a file's bar; the manifest comes behind the last."""
        return self.disk + 32 + FILE * number

    def wide(self, tensor: WholeTensor) -> float:
        """Width of a tensor's rectangle."""
        return LEAST + (self.pitch - 16 - LEAST) * tensor.size / max(1, self.most)

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """Names and numbers of the tensors."""
        out = []
        for row, (name, about) in enumerate(self.labels):
            y = TOP + ROW * row
            out.append(svg.text(LEFT + 16, y + 12, str(row + 1), anchor="end", size=12, bold=True))
            out.append(svg.text(LEFT + 26, y + 12, name, anchor="start", size=12))
            out.append(svg.text(LEFT + 26, y + 26, about, kind="soft", anchor="start", size=11))
        x = self.x(0)
        out.append(svg.text(x, HEAD, "each tensor", anchor="start", size=12, bold=True))
        return "".join(out)

    # --- what changes ------------------------------------------------------------------------
    def frame(self, number: int, head: str, caption: str) -> Frame:
        """One stage."""
        ranks = self.story.savers if number < WANTED else self.story.loaders
        columns = [self._column(number, index, rank) for index, rank in enumerate(ranks)]
        columns = [self._whole(number), *columns, *[""] * (self.ranks - len(ranks))]
        outlines = [self._outlines() if column else "" for column in columns]
        outlines[0] = self._outlines()
        top = svg.text(0, 0, head, size=15, anchor="start", bold=True)
        words = "files: number of the tensor above each bar, first byte below"
        disk = svg.text(0, 0, words, anchor="start", size=12, bold=True) if number >= FILES else ""
        files = [part for file in self.story.files for part in self._file(number, file)]
        parts = [*outlines, *columns, top, disk, *files, self._manifest(number)]
        return Frame(tuple(parts), caption)

    def _whole(self, number: int) -> str:
        """All tensors; once it is decided, each part in the colour of the rank that writes it."""
        if number < WRITTEN:
            return ""
        stored = [part for part, _, _ in self.story.stored]
        words = svg.text(0, HEAD + 20, "coloured by writer", anchor="start", size=11)
        return self._fill(stored) + self._numbers(stored) + words

    def _column(self, number: int, index: int, rank: int) -> str:
        """What one rank has of each tensor, and the sum of it."""
        if number >= WANTED:
            return self._loader(rank, number - WANTED > index)
        story = self.story
        color, mine = rank_color(rank), [part for part in story.held if part.rank == rank]
        out = [svg.pill(28, HEAD - 4, f"rank {rank}", color, text_on(color))]
        out.append(self._fill(mine, pale=number >= WRITTEN))
        words = f"holds {format_bytes(story.total(mine, rank))}"
        if number >= WRITTEN:
            stored = [part for part, _, _ in story.stored if part.rank == rank]
            out.append(self._fill(stored))
            words = f"writes {format_bytes(story.total(stored, rank))}"
        return "".join([*out, svg.text(0, HEAD + 20, words, anchor="start", size=11)])

    def _loader(self, rank: int, done: bool) -> str:
        """What a rank is to have; once it is read, in the colours of the files that it is from."""
        story = self.story
        mine = [part for part in story.wanted if part.rank == rank]
        words = f"{'has' if done else 'wants'} {format_bytes(story.total(mine, rank))}"
        out = [
            svg.text(0, HEAD, f"rank {rank}", anchor="start", size=13, bold=True),
            svg.text(0, HEAD + 20, words, anchor="start", size=11),
        ]
        sources = [source for part in mine for source in story.sources(part)]
        out += [self._fill(sources), self._numbers(sources)] if done else [self._fill(mine, True)]
        return "".join(out)

    def _outlines(self) -> str:
        """The outline of each tensor."""
        tensors = enumerate(self.story.tensors.values())
        boxes = [(0.0, TOP + ROW * row, self.wide(tensor), TALL) for row, tensor in tensors]
        return f'<path d="{_path(boxes)}" class="line-edge"/>'

    def _fill(self, parts: Sequence[TensorPart], pale: bool = False) -> str:
        """Parts in their rank's colour, or pale."""
        out = []
        for rank in sorted({part.rank for part in parts}):
            boxes = [box for part in parts if part.rank == rank for box in self._boxes(part)]
            look = 'class="panel"' if pale else f'fill="{rank_color(rank)}"'
            out.append(f'<path d="{_path(boxes, 0.8)}" {look}/>')
        return "".join(out)

    def _numbers(self, parts: Sequence[TensorPart]) -> str:
        """The rank of each part, where there is room."""
        return "".join(
            svg.text(
                x + wide / 2,
                y + tall / 2 + 4,
                str(part.rank),
                size=11,
                color=text_on(rank_color(part.rank)),
                bold=True,
            )
            for part in parts
            for x, y, wide, tall in self._boxes(part)
            if wide > 11 and tall > 12
        )

    def _boxes(self, part: TensorPart) -> list[Box]:
        """Where a part is in its column."""
        tensor = self.story.tensors[part.tensor]
        wide, top = self.wide(tensor), TOP + ROW * (self.number[part.tensor] - 1)
        return [
            (x * wide, top + y * TALL, w * wide, h * TALL)
            for x, y, w, h in _rectangles(tensor.shape, part)
        ]

    # --- files -------------------------------------------------------------------------------
    def _file(self, number: int, file: str) -> list[str]:
        """A file in four parts: its name, its pieces, its bytes in words, what of it is needed."""
        if number < FILES:
            return [""] * 4
        pieces = sorted((s for s in self.story.stored if s.file == file), key=lambda s: s.at)
        color = rank_color(pieces[0].part.rank)
        places = [(s.at * self.byte, self.story.count(s.part) * self.byte) for s in pieces]
        look = 'class="panel"' if number > WANTED else f'fill="{color}"'
        bar = f'<path d="{_path([(x, 0, wide, BAR) for x, wide in places], 0.8)}" {look}/>'
        about, read = format_bytes(self.story.files[file]), ""
        if number > WANTED:
            needed = self.story.needed(self.story.loaders[number - WANTED - 1], file)
            about = f"{format_bytes(sum(map(len, needed)))} of {about}"
            read = f'<path d="{self._stripes(needed)}" stroke="{color}" stroke-width="{BAR}"/>'
        name = self._label(file, color) + self._pieces(pieces, places)
        return [name, bar, self._about(about), read]

    def _pieces(self, pieces: Sequence[StoredPart], places: Sequence[svg.Point]) -> str:
        """The tensors' numbers above a file's bar and first bytes below, where there is room."""
        out, edge = [], -99.0
        for (part, _, at), (x, wide) in zip(pieces, places, strict=True):
            number = str(self.number[part.tensor])
            if wide > 14:
                out.append(svg.text(x + wide / 2, -4, number, size=11, bold=True))
            if x - edge > 4 and wide > 1:
                out.append(svg.text(x, BAR + 12, str(at), size=10, kind="soft", anchor="start"))
                edge = x + 6.2 * len(str(at))
        return "".join(out)

    def _stripes(self, needed: Sequence[range]) -> str:
        """What is needed of a file; stretches that are too fine to be seen are drawn as one."""
        groups: list[tuple[int, int]] = []
        for stretch in needed:
            if groups and (stretch.start - groups[-1][0]) * self.byte < FINE:
                groups[-1] = (groups[-1][0], groups[-1][1] + len(stretch))
            else:
                groups.append((stretch.start, len(stretch)))
        return "".join(
            f"M{svg.number(start * self.byte)} {BAR // 2}h{svg.number(max(0.8, count * self.byte))}"
            for start, count in groups
        )

    def _label(self, name: str, color: str) -> str:
        """A file's name with its colour, left of its bar."""
        x = LEFT - self.bars
        swatch = svg.box(x, 0, 10, BAR, fill=color, kind="panel", radius=2)
        return swatch + svg.text(x + 18, 9, name, anchor="start", size=12)

    def _about(self, words: str) -> str:
        """What is to be said of a file, below its name."""
        return svg.text(LEFT - self.bars + 18, 23, words, anchor="start", kind="soft", size=11)

    def _manifest(self, number: int) -> str:
        """The manifest, in an outline as wide as its words."""
        if number < MANIFEST:
            return ""
        words = svg.text(183, 14, "which box of which tensor lies where, with checksums", size=11.5)
        about = self._about(format_bytes(self.story.manifest))
        frame = svg.box(0, 0, 366, BAR, kind="ink-edge", edge=1.5, radius=2)
        return self._label("manifest", "") + about + frame + words


def _path(boxes: Iterable[Box], gap: float = 0) -> str:
    """Rectangles as one path, which is a third as long; `gap` is left free beside each."""
    out = []
    for x, y, wide, tall in boxes:
        right, down = (svg.number(max(0.8, side - gap)) for side in (wide, tall))
        out.append(f"M{svg.number(x)} {svg.number(y)}h{right}v{down}h-{right}z")
    return "".join(out)


def _rectangles(shape: tuple[int, ...], part: TensorPart) -> list[Box]:
    """A part as rectangles in shares of its tensor's."""
    if not all(part.sizes):
        return []
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    x = part.offsets[-1] / columns if shape else 0.0
    wide = part.sizes[-1] / columns if shape else 1.0
    down = stretches(shape[:-1], part.offsets[:-1], part.sizes[:-1])
    return [(x, r.start / rows, wide, len(r) / rows) for r in down]
