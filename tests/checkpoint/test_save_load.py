"""Sharded save and load: any layout into any other, each byte once, nothing whole in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import (
    AsyncSaver,
    Box,
    CheckpointError,
    Piece,
    boxes_of_range,
    complete_steps,
    find_checkpoint,
    latest,
    load_resharded,
    save_sharded,
)
from course_lib.checkpoint.files.manifest import BLOCK, DTYPES
from course_lib.trace.memory import LiveMemory

SHAPES: dict[str, tuple[int, ...]] = {
    "matrix": (13, 7), "cube": (3, 5, 4), "row": (11,), "scalar": (), "empty": (0, 4),
}  # fmt: skip
LAYOUTS = ("whole", "rows", "columns", "flat", "owner")


def value_of(name: str) -> torch.Tensor:
    count = torch.Size(SHAPES[name]).numel()
    return (torch.arange(count, dtype=torch.float64) + len(name) * 1000).view(SHAPES[name])


def boxes_of(layout: str, number: int, shape: tuple[int, ...], index: int, size: int) -> list[Box]:
    """What one rank holds of a tensor."""
    count = torch.Size(shape).numel()
    if layout == "whole" or not shape or not count:
        return [Box.whole(shape)]
    if layout == "owner":  # as a pipeline: all of it on one rank
        return [Box.whole(shape)] if number % size == index else []
    if layout == "flat":
        each = -(-count // size)
        return boxes_of_range(shape, min(index * each, count), min((index + 1) * each, count))
    dim = 0 if layout == "rows" else len(shape) - 1
    cuts = [round(i * shape[dim] / size) for i in range(size + 1)]
    offsets, sizes = [0] * len(shape), list(shape)
    offsets[dim], sizes[dim] = cuts[index], cuts[index + 1] - cuts[index]
    return [Box(tuple(offsets), tuple(sizes))] if sizes[dim] else []


def pieces_of(layout: str, index: int, size: int, *, blank: bool = False) -> list[Piece]:
    made = []
    for number, (name, shape) in enumerate(SHAPES.items()):
        for box in boxes_of(layout, number, shape, index, size):
            values = value_of(name)[box.slices(Box.whole(shape))]
            made.append(Piece(name, shape, box, torch.zeros_like(values) if blank else values))
    return made


def load_all(group: Any, folder: Path) -> list[str]:
    """Loads in every layout; the names of what was loaded wrong."""
    wrong = []
    for layout in LAYOUTS:
        wanted = pieces_of(layout, group.index, group.size, blank=True)
        load_resharded(wanted, folder, group)
        for found, right in zip(wanted, pieces_of(layout, group.index, group.size), strict=True):
            if not torch.equal(found.tensor, right.tensor):
                wrong.append(f"{layout} {found.name}")
    return wrong


@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_any_layout_on_any_number_of_ranks_into_any_other(
    ranks: Any, tmp_path: Path, before: int
) -> None:
    def save(group: Any) -> None:
        for layout in LAYOUTS:
            save_sharded(
                pieces_of(layout, group.index, group.size), tmp_path / layout, group, step=3
            )

    def load(group: Any) -> list[str]:
        return [
            f"from {name}: {bad}" for name in LAYOUTS for bad in load_all(group, tmp_path / name)
        ]

    ranks(save, before)
    for after in (1, 2, 3, 4):
        assert ranks(load, after) == [[]] * after


def test_a_lone_element_of_a_column_is_saved(ranks: Any, tmp_path: Path) -> None:
    """To torch it is contiguous, whatever its stride."""

    def save(group: Any) -> list[float]:
        lone = torch.arange(12.0)[group.index :: 12][:1]
        pieces = [Piece("w", (2,), Box((group.index,), (1,)), lone)]
        save_sharded(pieces, tmp_path, group, step=0)
        found = torch.zeros(2)
        load_resharded([Piece("w", (2,), Box.whole((2,)), found)], tmp_path, group)
        return found.tolist()

    assert ranks(save, 2) == [[0.0, 1.0]] * 2


def test_every_byte_is_written_once_and_by_no_rank_alone(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        tensors = [torch.full((100 + n,), n, dtype=torch.int16) for n in range(12)]
        pieces = [
            Piece(f"t{n}", (100 + n,), Box.whole((100 + n,)), t) for n, t in enumerate(tensors)
        ]
        save_sharded(pieces, tmp_path, group, step=0)

    ranks(save, 4)
    sizes = [path.stat().st_size for path in latest(tmp_path).glob("*.bin")]
    total = sum(2 * (100 + n) for n in range(12))
    assert sum(sizes) == total and len(sizes) == 4
    assert max(sizes) - min(sizes) <= 2 * 111


def test_every_dtype_and_strides_come_back_bit_for_bit(ranks: Any, tmp_path: Path) -> None:
    def run(group: Any) -> list[str]:
        raw = torch.randint(0, 256, (6, 64), dtype=torch.uint8,
                            generator=torch.Generator().manual_seed(1))  # fmt: skip
        raw[raw == 255] = 1
        tensors = {}
        for name, dtype in DTYPES.items():
            values = raw.bitwise_and(1).bool() if name == "bool" else raw.clone().view(dtype)
            tensors[name] = values.t() if len(name) % 2 else values
        blank = {name: torch.zeros_like(t) for name, t in tensors.items()}

        def pieces(of: dict[str, torch.Tensor]) -> list[Piece]:
            return [Piece(n, tuple(t.shape), Box.whole(t.shape), t) for n, t in of.items()]

        save_sharded(pieces(tensors), tmp_path, group, step=1)
        load_resharded(pieces(blank), tmp_path, group)
        return [n for n in tensors
                if not torch.equal(bits(tensors[n]), bits(blank[n]))]  # fmt: skip

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    assert ranks(run, 2) == [[], []]


def test_extra_state_comes_back_for_the_job_and_for_each_rank(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        torch.manual_seed(group.index)
        state = bytes(torch.get_rng_state().tolist()).hex()
        save_sharded(pieces_of("rows", group.index, group.size), tmp_path, group, step=70,
                     extra={"position": 12_345, "who": group.index}, rank_extra=state)  # fmt: skip

    def load(group: Any) -> Any:
        manifest = load_resharded([], tmp_path, group).manifest
        torch.set_rng_state(
            torch.tensor(list(bytes.fromhex(manifest.per_rank[group.index]))).byte()
        )
        return manifest.step, manifest.extra, torch.rand(3)

    ranks(save, 2)
    for index, (step, extra, drawn) in enumerate(ranks(load, 2)):
        assert (step, extra) == (70, {"position": 12_345, "who": 0})
        expected = torch.rand(3, generator=torch.Generator().manual_seed(index))
        assert torch.equal(drawn, expected)


def test_no_rank_ever_holds_the_full_state(ranks: Any, tmp_path: Path) -> None:
    """16 MiB over 4 ranks, by rows; then loaded by columns and flat on 3."""
    shape = (1024, 2048)

    def piece(group: Any, layout: str, fill: float) -> list[Piece]:
        boxes = boxes_of(layout, 0, shape, group.index, group.size)
        return [Piece("big", shape, box, torch.full(box.sizes, fill, dtype=torch.float64))
                for box in boxes]  # fmt: skip

    def save(group: Any) -> int:
        pieces = piece(group, "rows", float(group.index))
        with LiveMemory() as memory:
            save_sharded(pieces, tmp_path, group, step=1)
        return memory.peak

    def load(group: Any, layout: str) -> Any:
        pieces = piece(group, layout, -1.0)
        with LiveMemory() as memory:
            checkpoint = load_resharded(pieces, tmp_path, group)
        return memory.peak, checkpoint.read(pieces), [p.tensor.sum().item() for p in pieces]

    assert max(ranks(save, 4)) < 64 << 10
    for layout in ("columns", "flat"):
        results = ranks(load, 3, layout)
        assert max(peak for peak, _, _ in results) < BLOCK + (64 << 10)
        assert sum(sum(sums) for _, _, sums in results) == sum(range(4)) * 256 * 2048
        if layout == "flat":  # a third each, and the blocks that two share
            assert max(read for _, read, _ in results) <= 16 * BLOCK // 3 + 2 * BLOCK


def test_only_the_newest_are_kept_and_what_was_left_goes(ranks: Any, tmp_path: Path) -> None:
    (tmp_path / "step-00000001.tmp-dead").mkdir(parents=True)
    (tmp_path / "step-00000001.tmp-dead" / "rank-00000.bin").write_bytes(b"half")
    (tmp_path / "notes").mkdir()

    def run(group: Any) -> list[int]:
        for step in (5, 10, 9_999_999_999, 20):
            if step != 20:
                save_sharded(pieces_of("flat", group.index, 2), tmp_path, group, step=step, keep=2)
        return list(complete_steps(tmp_path))

    assert ranks(run, 2)[0] == [10, 9_999_999_999]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "notes", "step-00000010", "step-9999999999"]  # fmt: skip


WRONG = {
    "overlap": "parts overlap without being the same",
    "gap": "elements, in 2 boxes",
    "shape": "the same global shape and dtype on every rank",
    "again": "it is there already",
    "extra": "is not JSON serializable",
    "nan": "JSON compliant",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_save_that_cannot_be_is_refused_on_all_ranks(
    ranks: Any, tmp_path: Path, kind: str
) -> None:
    def run(group: Any) -> str:
        mine = group.index
        start, size = {"overlap": (mine * 2, 3), "gap": (mine * 3, 2)}.get(kind, (mine * 3, 3))
        total = {"overlap": 5, "gap": 6}.get(kind, 6)
        total += kind == "shape" and mine
        pieces = [Piece("t", (total,), Box((start,), (size,)), torch.ones(size))]
        extra = {"extra": torch.ones(1), "nan": float("nan")}.get(kind)
        try:
            for _ in range(1 + (kind == "again")):
                save_sharded(pieces, tmp_path, group, step=1, extra=extra)
        except CheckpointError as error:
            return str(error)
        return ""

    texts = ranks(run, 2)
    assert all(WRONG[kind] in text and len(text.splitlines()) == 3 for text in texts), texts
    assert list(complete_steps(tmp_path)) == ([1] if kind == "again" else [])


def test_a_load_that_cannot_be_is_refused_on_all_ranks(ranks: Any, tmp_path: Path) -> None:
    def run(group: Any) -> list[str]:
        texts = []
        for case in ("none", "name", "shape", "dtype", "step"):
            if case == "name":
                save_sharded(pieces_of("rows", group.index, 2), tmp_path, group, step=1)
            name = "absent" if case == "name" else "row"
            count = 12 if case == "shape" else 11
            dtype = torch.float32 if case == "dtype" else torch.float64
            # Only one rank asks for what is not there; the other must hear of it.
            wanted = [Piece(name, (count,), Box.whole((count,)), torch.ones(count, dtype=dtype))]
            try:
                load_resharded(wanted[: group.index == 1], tmp_path, group,
                               step=7 if case == "step" else None)  # fmt: skip
            except CheckpointError as error:
                texts.append(str(error))
        return texts

    for texts in ranks(run, 2):
        found = ["none that is complete", "load absent", "shape (11,), float64", "float32",
                 "load step 7"]  # fmt: skip
        assert len(texts) == 5
        for text, words in zip(texts, found, strict=True):
            assert words in text and len(text.splitlines()) == 3, text


def test_an_asynchronous_save_has_the_values_of_its_moment(ranks: Any, tmp_path: Path) -> None:
    def run(group: Any) -> Any:
        saver = AsyncSaver(tmp_path, group, keep=3)
        weight = torch.zeros(1000)
        box = Box((group.index * 1000,), (1000,))
        piece = Piece("w", (2000,), box, weight)
        for step in range(1, 5):
            weight.fill_(step)
            saver.save([piece], step=step)
            weight.fill_(-1)  # training goes on at once
        last = saver.wait()
        sums = []
        for step in complete_steps(tmp_path):
            load_resharded([piece], tmp_path, group, step=step)
            sums.append(weight.sum().item())
        return last == latest(tmp_path), saver.wait(), sums

    assert ranks(run, 2) == [(True, None, [2000.0, 3000.0, 4000.0])] * 2


def test_an_error_of_the_thread_is_raised_by_the_next_call_on_all_ranks(
    ranks: Any, tmp_path: Path
) -> None:
    """Rank 1 cannot make its file, since one of that name is there."""

    def run(group: Any) -> Any:
        saver = AsyncSaver(tmp_path, group)
        piece = Piece("w", (2,), Box((group.index,), (1,)), torch.ones(1))
        from course_lib.checkpoint import save as module

        write = module.write_part

        def blocked(folder: Path, index: int, pieces: Any) -> None:
            if index == 1:
                (folder / "rank-00001.bin").write_bytes(b"")
            write(folder, index, pieces)

        module.write_part = blocked
        saver.save([piece], step=1)
        module.write_part = write
        try:
            saver.save([piece], step=2)
            return "nothing was raised"
        except CheckpointError as error:
            first = str(error)
        saver.save([piece], step=2)
        path = saver.wait()
        assert path is not None
        return first, path.name

    for text, name in ranks(run, 2):
        assert "on index 1 of 2 ranks: FileExistsError" in text and name == "step-00000002"
    assert list(complete_steps(tmp_path)) == [2]


def test_the_manifest_is_plain_json(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        save_sharded(pieces_of("rows", group.index, 2), tmp_path, group, step=1)

    ranks(save, 2)
    found = json.loads((latest(tmp_path) / "manifest.json").read_text())["manifest"]
    assert found["tensors"]["matrix"] == [[13, 7], "float64"]
    assert find_checkpoint(tmp_path).manifest.step == 1
    assert {p.name for p in latest(tmp_path).iterdir()} == {
        "manifest.json", "rank-00000.bin", "rank-00001.bin"}  # fmt: skip


def test_a_step_is_one_whole_number_on_all_ranks(ranks: Any, tmp_path: Path) -> None:
    """1.5 would be written to a folder that is no complete checkpoint, and be lost."""

    def run(group: Any) -> list[str]:
        texts = []
        for step in (1.5, 10.0, True, "3", 4 + group.index):
            with pytest.raises(CheckpointError) as refused:
                save_sharded(pieces_of("rows", group.index, 2), tmp_path, group, step=step)
            texts.append(str(refused.value))
        return texts

    first, second = ranks(run, 2)
    assert first == second
    assert all("no whole number" in text for text in first[:4]) and "[4, 5]" in first[4]
    assert not [p for p in tmp_path.iterdir() if ".tmp-" not in p.name]


def test_what_was_just_saved_is_kept(ranks: Any, tmp_path: Path) -> None:
    """A training that went back saves lower steps than there are."""

    def run(group: Any) -> list[int]:
        for step, keep in ((10, None), (20, None), (5, 1), (7, 1)):
            path = save_sharded(pieces_of("rows", group.index, 2), tmp_path, group, step=step,
                                keep=keep)  # fmt: skip
            assert path.exists()
        return list(complete_steps(tmp_path))

    assert ranks(run, 2)[0] == [7, 10, 20]


def test_conjugates_have_their_values_and_meta_tensors_none(ranks: Any, tmp_path: Path) -> None:
    def run(group: Any) -> bool:
        value = torch.tensor([1 + 2j, 3 - 1j]).conj()
        found = torch.zeros(2, dtype=value.dtype)
        save_sharded([Piece("c", (2,), Box.whole((2,)), value)], tmp_path, group, step=1)
        load_resharded([Piece("c", (2,), Box.whole((2,)), found)], tmp_path, group)
        return torch.equal(found, value)

    assert ranks(run, 1) == [True]
    with pytest.raises(CheckpointError, match="meta device"):  # a copy to it says nothing
        Piece("c", (2,), Box.whole((2,)), torch.zeros(2, device="meta"))
