"""Export to safetensors and back; a stranger's file is read carefully."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import (
    Box,
    CheckpointError,
    Piece,
    boxes_of_range,
    find_checkpoint,
    save_sharded,
)
from course_lib.checkpoint.files.manifest import DTYPES
from course_lib.checkpoint.formats.safetensors import NAMES, export_safetensors, open_safetensors
from course_lib.trace.memory import LiveMemory


def file_of(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def whole(name: str, tensor: torch.Tensor) -> Piece:
    return Piece(name, tuple(tensor.shape), Box.whole(tensor.shape), tensor)


@pytest.fixture
def exported(ranks: Any, tmp_path: Path) -> Path:
    """Two tensors cut flat over three ranks, and a state that is not exported."""

    def save(group: Any) -> None:
        pieces = []
        for name, shape in {"model.w": (5, 4), "model.b": (7,), "optimizer.w.m": (5, 4)}.items():
            values = torch.arange(torch.Size(shape).numel(), dtype=torch.bfloat16)
            each = -(-len(values) // 3)
            stop = min(len(values), (group.index + 1) * each)
            for box in boxes_of_range(shape, group.index * each, stop):
                pieces.append(
                    Piece(name, shape, box, values.view(shape)[box.slices(Box.whole(shape))])
                )
        save_sharded(pieces, tmp_path / "sharded", group, step=1)

    ranks(save, 3)
    path = tmp_path / "model.safetensors"
    export_safetensors(find_checkpoint(tmp_path / "sharded"), path)
    return path


def test_the_file_is_what_the_format_says(exported: Path) -> None:
    """Parsed here by the description of the format, and not by the library."""
    raw = exported.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert raw[8:9] == b"{" and length % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    assert header == {
        "b": {"dtype": "BF16", "shape": [7], "data_offsets": [0, 14]},
        "w": {"dtype": "BF16", "shape": [5, 4], "data_offsets": [14, 54]},
    }
    data = bytearray(raw[8 + length :])
    assert len(data) == 54
    found = torch.frombuffer(data[14:], dtype=torch.bfloat16).view(5, 4)
    assert torch.equal(found, torch.arange(20, dtype=torch.bfloat16).view(5, 4))
    assert [p.name for p in exported.parent.iterdir() if p.name.startswith(".")] == []


def test_it_is_read_into_any_layout(exported: Path) -> None:
    right = torch.arange(20, dtype=torch.bfloat16).view(5, 4)
    columns = torch.zeros(5, 2, dtype=torch.bfloat16)
    checkpoint = open_safetensors(exported)
    checkpoint.read([Piece("model.w", (5, 4), Box((0, 1), (5, 2)), columns)])
    assert torch.equal(columns, right[:, 1:3])
    with pytest.raises(CheckpointError, match="load model.missing"):
        checkpoint.read([whole("model.missing", torch.zeros(2))])


def test_every_dtype(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        save_sharded([whole(f"model.{n}", torch.ones(3, dtype=DTYPES[n])) for n in NAMES],
                     tmp_path, group, step=1)  # fmt: skip

    ranks(save, 1)
    export_safetensors(find_checkpoint(tmp_path), tmp_path / "all.safetensors")
    for name in NAMES:
        found = torch.zeros(3, dtype=DTYPES[name])
        open_safetensors(tmp_path / "all.safetensors").read([whole(f"model.{name}", found)])
        assert found.float().sum() == 3 if name != "complex64" else found.real.sum() == 3


def test_an_export_holds_one_tensor_at_a_time(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        save_sharded([whole(f"model.{n}", torch.ones(1 << 18)) for n in range(8)], tmp_path, group,
                     step=1)  # fmt: skip

    ranks(save, 2)
    with LiveMemory() as memory:
        export_safetensors(find_checkpoint(tmp_path), tmp_path / "m.safetensors")
    assert memory.peak <= (3 << 20) + 1000, "a tensor of 1 MiB, the block, and the one before"
    with pytest.raises(CheckpointError, match="0 such tensors"):
        export_safetensors(find_checkpoint(tmp_path), tmp_path / "x.safetensors", prefix="none.")


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


EIGHT = b"\0" * 8
WRONG: dict[str, bytes] = {
    "nothing": b"",
    "cut length": b"\1\0\0",
    "huge header": struct.pack("<Q", 2**63) + b"{}",
    "header beyond the end": struct.pack("<Q", 50) + b"{}",
    "no JSON": file_of(b"pickle!!", b""),
    "deep JSON": file_of(b"[" * 100_000, b""),
    "a list": file_of([], b""),
    "dtype": file_of({"a": entry("F31")}, EIGHT),
    "dtype of another type": file_of({"a": entry([])}, EIGHT),
    "fields": file_of({"a": {**entry(), "code": 1}}, EIGHT),
    "shape": file_of({"a": entry(shape=[3])}, EIGHT),
    "negative": file_of({"a": entry(shape=[-1, -2])}, EIGHT),
    "float": file_of({"a": entry(shape=[2.0])}, EIGHT),
    "three offsets": file_of({"a": entry(offsets=[0, 8, 8])}, EIGHT),
    "beyond the end": file_of({"a": entry(offsets=[4, 12])}, EIGHT),
    "truncated": file_of({"a": entry()}, EIGHT[:-1]),
    "longer": file_of({"a": entry()}, EIGHT + b"x"),
    "overlap": file_of({"a": entry(), "b": entry()}, EIGHT),
    "gap": file_of({"a": entry(), "b": entry(offsets=[9, 17])}, EIGHT * 3),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_safetensors_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(WRONG[kind])
    with pytest.raises(CheckpointError, match=r"bad\.safetensors") as error:
        open_safetensors(path)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["same", "__metadata__"])
def test_two_tensors_of_one_name_are_refused(exported: Path, name: str) -> None:
    """Their bytes would both be written, and the header would know of one."""
    path = exported.with_name("renamed.safetensors")
    with pytest.raises(CheckpointError, match="a name of its own"):
        export_safetensors(
            find_checkpoint(exported.with_name("sharded")), path, rename=lambda _: name
        )
    assert not path.exists()
