"""The map of a checkpoint: bytes and ranges are those of a real save and of a real load."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import (
    Box,
    Piece,
    boxes_of_range,
    find_checkpoint,
    load_resharded,
    save_sharded,
)
from course_lib.plot import StoredPart, TensorPart, WholeTensor, checkpoint_map
from course_lib.plot.checkpoint.checkpoint_map import CheckpointDrawing, _rectangles
from course_lib.plot.checkpoint.checkpoint_parts import Story, stretches
from course_lib.plot.player.style import BLUE, ORANGE
from tests.tiers import sampled

SHAPES = {"embed": (16, 8), "up": (24, 8), "down": (8, 24), "bias": (24,), "step": ()}
CUT = {"embed": 0, "up": 0, "bias": 0, "down": 1}  # tensor parallel: by rows, or by columns


def values_of(name: str) -> torch.Tensor:
    """A number that no other element of any tensor has."""
    start = 1000 * list(SHAPES).index(name)
    count = math.prod(SHAPES[name])
    return torch.arange(start, start + count, dtype=torch.int32).view(SHAPES[name])


def boxes_of(layout: str, name: str, index: int, size: int) -> list[Box]:
    """What one rank has of a tensor."""
    shape, count = SHAPES[name], math.prod(SHAPES[name])
    if layout == "whole" or not shape:
        return [Box.whole(shape)]
    if layout == "flat":
        return boxes_of_range(shape, index * count // size, (index + 1) * count // size)
    offsets, sizes, dim = [0] * len(shape), list(shape), CUT[name]
    offsets[dim] = index * shape[dim] // size
    sizes[dim] = (index + 1) * shape[dim] // size - offsets[dim]
    return [Box(tuple(offsets), tuple(sizes))]


def pieces_of(layout: str, group: Any, blank: bool = False) -> list[Piece]:
    made = []
    for name, shape in SHAPES.items():
        for box in boxes_of(layout, name, group.index, group.size):
            values = values_of(name)[box.slices(Box.whole(shape))]
            made.append(Piece(name, shape, box, torch.zeros_like(values) if blank else values))
    return made


def parts_of(pieces: list[Piece], rank: int) -> list[TensorPart]:
    """A rank's pieces, as the picture takes them."""
    return [TensorPart(rank, p.name, p.box.offsets, p.box.sizes) for p in pieces]


def saved_and_loaded(ranks: Any, folder: Path, before: tuple[str, int], after: tuple[str, int]
                     ) -> Story:  # fmt: skip
    """A checkpoint that ranks really saved and others really loaded."""

    def save(group: Any) -> list[TensorPart]:
        pieces = pieces_of(before[0], group)
        save_sharded(pieces, folder, group, step=1)
        return parts_of(pieces, group.rank)

    def load(group: Any) -> list[TensorPart]:
        pieces = pieces_of(after[0], group, blank=True)
        load_resharded(pieces, folder, group)
        right = pieces_of(after[0], group)
        assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(pieces, right, strict=True))
        return parts_of(pieces, group.rank)

    held, wanted = sum(ranks(save, before[1]), []), sum(ranks(load, after[1]), [])
    manifest = find_checkpoint(folder).manifest
    tensors = {name: WholeTensor(t.shape, t.item) for name, t in manifest.tensors.items()}
    stored = []
    for p in manifest.pieces:
        writer = int(p.file.removeprefix("rank-").removesuffix(".bin"))
        part = TensorPart(writer, p.tensor, p.box.offsets, p.box.sizes)
        stored.append(StoredPart(part, p.file, p.at))
    return Story(tensors, held, stored, wanted, len(manifest.to_bytes()))


CHANGES = [(("cut", 4), ("flat", 3)), (("whole", 4), ("cut", 2)), (("flat", 2), ("cut", 4))]


@pytest.mark.slow
@pytest.mark.parametrize("change", sampled(CHANGES, 3))
def test_a_real_checkpoint(ranks, tmp_path, change):
    before, after = change
    story = saved_and_loaded(ranks, tmp_path, before, after)
    folder = find_checkpoint(tmp_path).folder
    assert story.files == {path.name: path.stat().st_size for path in folder.glob("*.bin")}
    assert story.manifest == (folder / "manifest.json").stat().st_size
    for rank in range(after[1]):
        read = b"".join(
            (folder / file).read_bytes()[bytes_.start : bytes_.stop]
            for file in story.files for bytes_ in story.needed(rank, file)
        )  # fmt: skip
        wanted = [part for part in story.wanted if part.rank == rank]
        values = [
            values_of(p.tensor)[Box(p.offsets, p.sizes).slices(Box.whole(SHAPES[p.tensor]))]
            for p in wanted
        ]
        right = torch.cat([v.flatten() for v in values]).sort().values
        assert torch.equal(
            torch.frombuffer(bytearray(read), dtype=torch.int32).sort().values, right
        )
    player = checkpoint_map(*vars(story).values())
    assert len(player.frames) == 5 + after[1]
    assert len(player._repr_html_()) < 60_000


def test_stretches_are_the_elements_of_the_box():
    for shape, box in [
        ((4, 6), Box((0, 2), (4, 3))), ((4, 6), Box((1, 0), (2, 6))), ((5,), Box((1,), (3,))),
        ((3, 4, 5), Box((1, 0, 0), (2, 4, 5))), ((3, 4, 5), Box((0, 1, 2), (3, 2, 3))),
        ((3, 4, 5), Box((0, 1, 0), (3, 2, 5))), ((), Box((), ())), ((4, 6), Box((0, 0), (4, 0))),
    ]:  # fmt: skip
        numbers = torch.arange(math.prod(shape)).view(shape)[box.slices(Box.whole(shape))]
        found = stretches(shape, box.offsets, box.sizes)
        assert [i for r in found for i in r] == numbers.flatten().tolist()
    assert stretches((3, 4, 5), (0, 1, 0), (3, 2, 5)) == [
        range(5, 15),
        range(25, 35),
        range(45, 55),
    ]


def test_a_cut_of_columns_is_a_vertical_strip_and_one_of_rows_a_horizontal_one():
    def boxes(shape, offsets, sizes):
        return _rectangles(shape, TensorPart(0, "t", offsets, sizes))

    assert boxes((32, 96), (0, 24), (32, 24)) == [(0.25, 0, 0.25, 1)]
    assert boxes((32, 96), (8, 0), (8, 96)) == [(0, 0.25, 1, 0.25)]
    assert boxes((8,), (2,), (4,)) == [(0.25, 0, 0.5, 1)]
    assert boxes((), (), ()) == [(0, 0, 1, 1)]
    assert boxes((4, 2, 8), (0, 1, 0), (4, 1, 8)) == [(0, (1 + 2 * i) / 8, 1, 1 / 8)
                                                      for i in range(4)]  # fmt: skip
    assert boxes((0, 4), (0, 0), (0, 4)) == []


def test_captions_count_bytes_and_stretches(two_ranks):
    captions = [frame.caption for frame in checkpoint_map(**two_ranks).frames]
    assert captions[0] == (
        "The tensors are 256 B. Each rank has 192 B, together 384 B, of which 128 B are replicas."
    )
    assert captions[1] == (
        "Rank 0 has 192 B, rank 1 has 64 B to write: 256 B in all. The pale parts, 128 B, are "
        "replicas that another rank writes."
    )
    assert "a.bin 192 B, b.bin 64 B" in captions[2] and captions[3].startswith(
        "The manifest, 300 B,"
    )
    assert captions[4].startswith("2 ranks load. Rank 0 has 96 B, rank 1 has 64 B to read.")
    assert captions[5] == (
        "Rank 0 needs 96 B: 64 B of a.bin in 5 stretches, 32 B of b.bin in one stretch. "
        "The colour is the file's."
    )
    assert captions[6].startswith("Rank 1 needs 64 B: 32 B of a.bin in one stretch, 32 B of b.bin")


def test_files_are_as_long_as_their_bytes_and_stripes_lie_where_they_are_needed(two_ranks):
    player = checkpoint_map(**two_ranks)
    drawing = CheckpointDrawing(Story(**two_ranks))
    name, bar, about, stripes = player.frames[5].parts[8:12]
    assert "a.bin" in name and ">64 B of 192 B<" in about
    found = re.findall(r"M([\d.]+) 10h([\d.]+)", stripes)
    needed = [(0, 32), (72, 8), (104, 8), (136, 8), (168, 8)]
    assert [(float(x), float(w)) for x, w in found] == [
        (pytest.approx(at * drawing.byte, abs=0.1), pytest.approx(n * drawing.byte, abs=0.1))
        for at, n in needed
    ]
    pieces = [float(x) for x in re.findall(r"M([\d.]+) 0h", bar)]
    assert pieces == [0, pytest.approx(64 * drawing.byte, abs=0.1)]
    assert 'class="panel"' in bar and BLUE in player.frames[2].parts[9]


def test_frames_show_replicas_writers_and_sources(two_ranks):
    frames = checkpoint_map(**two_ranks).frames
    whole, first, second = frames[0].parts[3:6]
    assert whole == "" and BLUE in first and ORANGE in second
    assert 'class="panel"' not in second.split("</text>")[1]
    second = frames[1].parts[5]  # rank 1 writes its columns; what both hold is pale
    strip = re.search(rf'd="(M[^"]*)" fill="{ORANGE}"', second)[1]
    assert strip.count("M") == 1 and 'class="panel"' in second
    assert (
        frames[1].parts[8] == ""
        and frames[2].parts[-1] == ""
        and "manifest" in "".join(frames[3].parts[-1:])
    )
    waiting, done = frames[5].parts[5], frames[6].parts[5]
    assert "wants 64 B" in waiting and BLUE not in waiting
    assert "has 64 B" in done and BLUE in done and ORANGE in done


def test_what_is_no_checkpoint_is_refused(two_ranks):
    files, both = two_ranks["stored"], two_ranks["held"][0]
    for stored in (files[:2], [*files, StoredPart(both, "c.bin", 0)]):
        with pytest.raises(ValueError, match="every element is stored exactly once"):
            checkpoint_map(**two_ranks | {"stored": stored})
    outside = [TensorPart(0, "cut", (0, 5), (4, 4)), TensorPart(0, "cut", (0,), (4,)),
               TensorPart(0, "other", (0, 0), (1, 1))]  # fmt: skip
    for part in outside:
        with pytest.raises(ValueError, match="a part lies in the tensor that it is of"):
            checkpoint_map(**two_ranks | {"wanted": [part]})
    many = [TensorPart(rank, "cut", (0, 0), (4, 8)) for rank in range(7)]
    for change in ({"wanted": []}, {"held": many}):
        with pytest.raises(ValueError, match="found: room for 1 to 12 tensors and 1 to 6 ranks"):
            checkpoint_map(**two_ranks | change)


def test_the_largest_map_is_small():
    tensors = {f"optimizer.blocks.{i}.weight.exp_avg": WholeTensor((96, 48), 4) for i in range(12)}
    held = [TensorPart(r, name, (16 * r, 0), (16, 48)) for name in tensors for r in range(6)]
    stored = [
        StoredPart(part, f"rank-{part.rank:05}.bin", number // 6 * 16 * 48 * 4)
        for number, part in enumerate(held)
    ]
    wanted = [TensorPart(r, name, (0, 8 * r), (96, 8)) for name in tensors for r in range(6)]
    player = checkpoint_map(tensors, held, stored, wanted, 9000)
    assert "in 192 stretches" in player.frames[5].caption
    assert len(player._repr_html_()) < 150_000
