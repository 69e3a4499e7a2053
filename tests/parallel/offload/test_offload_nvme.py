"""Tensors in files: bit for bit, torn files refused by name, the next read while one is in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.parallel.offload import nvme
from course_lib.parallel.offload.nvme import PAGE, NvmeStore, TornFile

TENSORS = [
    torch.randn(5, 7, dtype=torch.float64),
    torch.randn(3, 4).t(),
    torch.tensor(3.5, dtype=torch.bfloat16),
    torch.empty(0, 3),
    torch.arange(9000, dtype=torch.int64),
    torch.tensor([True, False]),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NvmeStore]:
    with NvmeStore(tmp_path / "state") as made:
        yield made


def put(store: NvmeStore, name: str, tensor: torch.Tensor) -> Path:
    store.start_write(name, tensor).result()
    return store.folder / name


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype} {tuple(t.shape)}")
def test_comes_back_bit_for_bit(store: NvmeStore, tensor: torch.Tensor) -> None:
    put(store, "x", tensor)
    back = store.start_read("x").result()
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)
    back.zero_()  # a copy of its own
    assert torch.equal(store.start_read("x").result(), tensor)
    assert store.written == tensor.nbytes
    assert store.read == 2 * tensor.nbytes


@pytest.mark.parametrize("place", [0, 9, 20, 60, PAGE - 1, PAGE, PAGE + 100, -1])
def test_one_changed_bit_is_found(store: NvmeStore, place: int) -> None:
    path = put(store, "moment", TENSORS[0])
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(TornFile, match="asked: read moment"):
        store.start_read("moment").result()


@pytest.mark.parametrize("size", [0, 10, PAGE, PAGE + 8, -1])
def test_a_file_cut_short_or_too_long_is_found(store: NvmeStore, size: int) -> None:
    path = put(store, "moment", TENSORS[0])
    whole = path.read_bytes()
    for data in (whole[:size], whole + b"\0"):
        path.write_bytes(data)
        with pytest.raises(TornFile, match="asked: read moment"):
            store.start_read("moment").result()


def test_a_file_under_another_name_is_found(store: NvmeStore) -> None:
    path = put(store, "first", TENSORS[0])
    path.rename(store.folder / "second")
    with pytest.raises(TornFile, match="the file of 'first'"):
        store.start_read("second").result()
    with pytest.raises(FileNotFoundError):
        store.start_read("first").result()
    with pytest.raises(ValueError, match="one folder"):
        store.start_write("../elsewhere", TENSORS[0])


def test_a_crash_while_writing_leaves_the_old_one(
    store: NvmeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "x", torch.zeros(2000))

    def crash(descriptor: int) -> None:
        os.ftruncate(descriptor, PAGE + 17)
        raise OSError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(nvme.os, "fsync", crash)
        with pytest.raises(OSError, match="power cut"):
            put(store, "x", torch.ones(2000))
    assert not store.start_read("x").result().any()
    put(store, "x", torch.ones(2000))
    assert store.start_read("x").result().all()
    assert [p.name for p in store.folder.iterdir()] == ["x"]


def test_the_next_read_is_begun_before_the_last_is_given_out(
    store: NvmeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(store, str(number), torch.full((3,), float(number)))
        put(store, f"{number}b", torch.full((3,), -float(number)))
    begun: list[str] = []
    real = store.start_read

    def watched(name: str) -> Any:
        begun.append(name)
        return real(name)

    monkeypatch.setattr(store, "start_read", watched)
    for number, (name, (first,)) in enumerate(store.stream(["0", "1", "2", "3"])):
        assert name == str(number)
        assert first.eq(number).all()
        assert len(begun) == min(number + 2, 4)
    assert not list(store.stream([]))
    pairs = list(store.stream([["0", "0b"], ["1", "1b"]]))
    assert [tensor[0].item() for _, pair in pairs for tensor in pair] == [0, 0, 1, -1]
