"""Checkpoints of torch.distributed.checkpoint are read, and a hostile index runs nothing."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.checkpoint import Box, CheckpointError, Piece
from course_lib.checkpoint.formats.torch_format import open_torch_checkpoint

VALUES = {
    "model.w": torch.arange(35, dtype=torch.float32).view(7, 5),
    "model.b": torch.arange(6, dtype=torch.bfloat16),
    "model.s": torch.tensor(2.5, dtype=torch.float64),
}


def save_sharded_by_torch(group: Any, folder: Path) -> None:
    """`w` in uneven rows over the ranks, the others whole on each; and what is no tensor."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (group.size,))
    model = {
        "w": distribute_tensor(VALUES["model.w"], mesh, [Shard(0)]),
        "b": distribute_tensor(VALUES["model.b"], mesh, [Replicate()]),
        "s": VALUES["model.s"],
    }
    dcp.save({"model": model, "step": 3, "notes": ["a", {"b": 1.5}]}, checkpoint_id=folder)


@pytest.mark.parametrize("world", [1, 3])
def test_a_checkpoint_of_torch_is_read_into_any_layout(
    ranks: Any, tmp_path: Path, world: int
) -> None:
    ranks(save_sharded_by_torch, world, tmp_path)
    checkpoint = open_torch_checkpoint(tmp_path)
    assert checkpoint.manifest.tensors.keys() == VALUES.keys()
    for name, whole in VALUES.items():
        shape = tuple(whole.shape)
        boxes = [Box.whole(shape)]
        if whole.dim() == 2:
            boxes += [Box((0, n), (7, 1)) for n in range(5)]
        for box in boxes:
            found = torch.zeros(box.sizes, dtype=whole.dtype)
            checkpoint.read([Piece(name, shape, box, found)])
            assert torch.equal(found, whole[box.slices(Box.whole(shape))])


class Evil:
    """Unpickled by pickle itself, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_a_hostile_index_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Evil(tmp_path / "trace")))
    with pytest.raises(CheckpointError, match=r"(?s)\.metadata.*asks for posix.mkdir") as error:
        open_torch_checkpoint(tmp_path)
    assert not (tmp_path / "trace").exists() and len(str(error.value).splitlines()) == 3
    pickle.loads((tmp_path / ".metadata").read_bytes())
    assert (tmp_path / "trace").exists(), "the pickle is a working one"


def test_an_index_may_name_paths_as_python_3_13_does(ranks: Any, tmp_path: Path) -> None:
    """The folder's path is in it, and that Python keeps the classes of paths elsewhere."""

    def save(group: Any, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "pathlib._local", pathlib)
            patch.setattr(pathlib.PosixPath, "__module__", "pathlib._local")
            save_sharded_by_torch(group, folder)

    ranks(save, 1, tmp_path)
    assert b"pathlib._local" in (tmp_path / ".metadata").read_bytes()
    assert open_torch_checkpoint(tmp_path).manifest.pieces


def test_a_damaged_index_is_refused_or_means_the_same(ranks: Any, tmp_path: Path) -> None:
    """No flipped byte does anything but end in our error or in a checkpoint with checked places."""
    ranks(save_sharded_by_torch, 1, tmp_path)
    path = tmp_path / ".metadata"
    good, dice = path.read_bytes(), random.Random(2)
    for place in range(0, len(good), 3):
        bad = bytearray(good)
        bad[place] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        try:
            open_torch_checkpoint(tmp_path)
        except CheckpointError as error:
            assert len(str(error).splitlines()) == 3
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match="metadata"):
            open_torch_checkpoint(tmp_path)


def test_a_truncated_file_is_named(ranks: Any, tmp_path: Path) -> None:
    ranks(save_sharded_by_torch, 1, tmp_path)
    path = next(tmp_path.glob("*.distcp"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=path.name):
        open_torch_checkpoint(tmp_path)


def test_strides_that_are_not_row_major_are_refused(ranks: Any, tmp_path: Path) -> None:
    def save(group: Any) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save({"w": torch.arange(12.0).view(3, 4).t()}, checkpoint_id=tmp_path)

    ranks(save, 1)
    with pytest.raises(CheckpointError, match=r"(?s)distcp.*strides \(1, 4\)"):
        open_torch_checkpoint(tmp_path)
