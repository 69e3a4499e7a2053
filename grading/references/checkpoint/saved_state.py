"""Checkpoints of exercises: how state is cut, and whether what lies on the disk is that state.

A piece travels as a list [name, shape, offsets, values] of a whole tensor; a part is what the
manifest says of one: see the task of `save_sharded`.
"""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from course_lib.grade.suite import Run
from course_lib.trace.memory import LiveMemory

PART = {"name": str, "shape": list, "dtype": str, "offsets": list, "sizes": list, "bytes": int,
        "file": str, "at": int}  # fmt: skip
Given = list[Any]  # name, shape, offsets, values


def step_path(folder: str | Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return Path(folder) / f"step-{step:08}"


def newest(folder: str | Path) -> int | None:
    """The newest complete step; None if there is none."""
    names = [path.parent.name[5:] for path in Path(folder).glob("step-*/manifest.json")]
    return max((int(name) for name in names if name.isdigit()), default=None)


def cut(name: str, whole: torch.Tensor, dim: int | None, index: int, world: int) -> Given:
    """The box of a tensor that one rank has: a part along `dim`, or all of it if that is None."""
    offsets, values = [0] * whole.dim(), whole
    if dim is not None:
        parts = whole.tensor_split(world, dim)
        offsets[dim] = sum(part.shape[dim] for part in parts[:index])
        values = parts[index]
    return [name, list(whole.shape), offsets, values]


def padded(name: str, whole: torch.Tensor, world: int, align: int) -> list[Given]:
    """Each rank's rows of a tensor with zeros behind: as many for each, divided by `align`."""
    size = -(-len(whole) // (world * align)) * align
    rest = whole.new_zeros((size * world - len(whole), *whole.shape[1:]))
    begin = [0] * (whole.dim() - 1)
    return [
        [name, list(whole.shape), [index * size, *begin], part.clone()]
        for index, part in enumerate(torch.cat([whole, rest]).split(size))
    ]


def pieces_of(learner: Any, given: Sequence[Given], fill: float | None = None) -> list[Any]:
    """The learner's pieces; matrices lie column by column, and some need a gradient.

    Args:
        learner: the module, with a `Piece`.
        given: name, shape, offsets, values of each.
        fill: what the tensors are full of, to be loaded into; None for the values.
    """
    made = []
    for number, (name, shape, offsets, values) in enumerate(given):
        tensor = values if fill is None else torch.full_like(values, fill)
        tensor = tensor.t().contiguous().t() if tensor.dim() == 2 else tensor
        if tensor.is_floating_point() and number % 2:
            tensor.requires_grad_()
        made.append(learner.Piece(name, tuple(shape), tuple(offsets), tensor))
    return made


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's values, row by row."""
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def slices(part: dict[str, Any]) -> tuple[slice, ...]:
    """Where a part is in its tensor."""
    places = zip(part["offsets"], part["sizes"], strict=True)
    return tuple(slice(start, start + size) for start, size in places)


@contextmanager
def measured_memory(found: dict[str, Any]) -> Iterator[LiveMemory]:
    """Adds to `found`, as `peak`, the most bytes that a block held in new tensors and objects.

    Both peaks are added up, of torch's memory and of Python's and numpy's, which may lie apart:
    so nothing that is copied from one into the other counts less than it takes.
    """
    tracemalloc.start()
    try:
        with LiveMemory() as memory:
            yield memory
        found["peak"] = memory.peak + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_checkpoint(folder: str | Path, step: int, ranks: Sequence[Sequence[Given]]) -> None:
    """Writes what some ranks have, each box once, as the reader of an exercise will find it."""
    path, parts, seen = step_path(folder, step), [], set()
    path.mkdir(parents=True)
    for index, given in enumerate(ranks):
        name, data = f"rank-{index}.bin", b"\xff" * 3  # so that `at` fits no dtype
        for about in given:
            key = (about[0], *about[2])
            if about[3].numel() and key not in seen:
                seen.add(key)
                parts.append({**_about(*about), "file": name, "at": len(data)})
                data += raw(about[3])
        (path / name).write_bytes(data)
    text = json.dumps({"step": step, "pieces": parts})
    (path / "manifest.json").write_text(text)


def _about(name: str, shape: list[int], offsets: list[int], values: torch.Tensor) -> dict[str, Any]:
    dtype = str(values.dtype).removeprefix("torch.")
    return {"name": name, "shape": shape, "dtype": dtype, "offsets": offsets,
            "sizes": list(values.shape), "bytes": values.nbytes}  # fmt: skip


# --- what the judge reads ------------------------------------------------------------------------
def read_parts(run: Run, path: Path) -> list[dict[str, Any]]:
    """The pieces that a manifest lists, each with its `data`; fails unless all is in order."""
    manifest = path / "manifest.json"
    run.true(
        manifest.is_file(),
        f"there is no {path.name}/manifest.json after the save",
        cause="index 0 writes it last, and gives it its name by os.replace",
    )
    try:
        parts = json.loads(manifest.read_bytes())["pieces"]
        wrong = [key for part in parts for key, kind in PART.items() if type(part[key]) is not kind]
    except (ValueError, KeyError, TypeError) as error:
        run.fail(
            "the manifest cannot be read",
            expected="JSON as the task shows it",
            measured=f"{type(error).__name__}: {error}",
        )
    run.true(not wrong, f"{wrong[:1]} has the wrong type in the manifest", expected=str(PART))
    for part in parts:
        file = path / Path(part["file"]).name
        run.true(file.is_file(), f"the manifest names {part['file']}, which is not there")
        size, end = file.stat().st_size, part["at"] + part["bytes"]
        run.true(
            part["at"] >= 0 and end <= size,
            f"the manifest says that {_what(part)} reaches to byte {end} of {part['file']}",
            expected=f"at most {size}, its size",
            measured=str(end),
            cause="`at` counts bytes from the beginning of the file; `flush` and sync before "
            "the file is looked at",
        )
        with open(file, "rb") as opened:
            opened.seek(part["at"])
            part["data"] = opened.read(part["bytes"])
    return list(parts)


def _what(part: dict[str, Any]) -> str:
    return f"the box of {part['name']} at {part['offsets']}, sizes {part['sizes']},"


def compare_parts(run: Run, parts: list[dict[str, Any]], state: dict[str, torch.Tensor]) -> None:
    """Fails unless the parts together are the state: every element once, bit for bit."""
    other = {part["name"] for part in parts} - set(state)
    run.true(not other, f"the manifest has tensors that nobody has: {sorted(other)}")
    for name, whole in state.items():
        mine = [part for part in parts if part["name"] == name]
        dtype = str(whole.dtype).removeprefix("torch.")
        seen = torch.zeros(whole.shape, dtype=torch.int64)
        for part in mine:
            what = f"shape and dtype of {name} in the manifest"
            run.equal([part["shape"], part["dtype"]], [list(whole.shape), dtype], what)
            _compare_part(run, part, whole)
            seen[slices(part)] += 1
        twice, never = int((seen > 1).sum()), int((seen == 0).sum())
        run.true(
            not twice,
            f"{twice} elements of {name} are in the manifest more than once",
            expected="a box that several ranks have is written by one of them",
            cause="replicas are written by several ranks",
        )
        run.true(
            not never,
            f"{never} of {whole.numel()} elements of {name} are nowhere",
            cause="a box that nobody writes is lost: is the order the same everywhere?",
        )


def _compare_part(run: Run, part: dict[str, Any], whole: torch.Tensor) -> None:
    expected = whole[slices(part)]
    run.equal(list(expected.shape), part["sizes"], f"sizes of {_what(part)} within its tensor")
    run.equal(part["bytes"], math.prod(part["sizes"]) * whole.itemsize, f"bytes of {_what(part)}")
    data = raw(expected)
    if part["data"] == data:
        return
    order = "its values lie column by column: write them of a contiguous tensor"
    wide = "they are float32, and the manifest says bfloat16: write the bytes as they are"
    likely = {
        order: raw(expected.mT) if expected.dim() == 2 else b"",
        wide: raw(expected.float())[: len(data)],
    }
    causes = [why for why, other in likely.items() if other == part["data"]]
    shown = torch.frombuffer(bytearray(part["data"]), dtype=whole.dtype)
    run.fail(
        f"{_what(part)} has other bytes in {part['file']} than it should",
        expected=str(expected.flatten()[:4].tolist()),
        measured=str(shown[:4].tolist()),
        cause=[*causes, "is `at` the place where its first byte was written?"][0],
    )


def file_sizes(path: Path, world: int) -> list[int]:
    """Bytes in each rank's file; 0 where there is none."""
    files = [path / f"rank-{index}.bin" for index in range(world)]
    return [file.stat().st_size if file.exists() else 0 for file in files]


def total_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of all values."""
    return sum(tensor.nbytes for tensor in tensors)
