"""torch.distributed.checkpoint loads what this library has saved, through a storage reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.checkpoint import (
    Box,
    CourseReader,
    Piece,
    export_safetensors,
    find_checkpoint,
    hold_fsdp,
    model_pieces,
    open_checkpoint,
    open_safetensors,
    optimizer_pieces,
    save_sharded,
)
from course_lib.parallel import FSDP

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def model_of() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def save(group: Any, folder: Path) -> dict[str, torch.Tensor]:
    """One step of AdamW under FSDP, saved; the states in whole."""
    wrapped = FSDP(model_of(), group)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    wrapped(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    held = hold_fsdp(wrapped)
    pieces = model_pieces(held) + optimizer_pieces(held, optimizer)
    save_sharded(pieces, folder, group, step=2)
    return wrapped.full_state_dict()


def load(group: Any, folder: Path, dim: int | None) -> dict[str, torch.Tensor]:
    """With torch alone, into DTensors that are cut along `dim`, or into plain tensors."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (group.size,))
    state: dict[str, Any] = {}
    for name, tensor in model_of().state_dict().items():
        cut = [Shard(min(dim or 0, tensor.dim() - 1))]
        zeros = torch.zeros_like(tensor)
        state[name] = zeros if dim is None else distribute_tensor(zeros, mesh, cut)
    reader = CourseReader(open_checkpoint(folder, group))
    dcp.load({"model": state}, storage_reader=reader)
    return state if dim is None else {name: t.full_tensor() for name, t in state.items()}


@pytest.mark.parametrize("dim", [0, 1, None])
def test_torch_loads_fsdps_shards_into_its_own(ranks: Any, tmp_path: Path, dim: int | None) -> None:
    """Saved from our FSDP on 3 ranks, loaded into DTensors of rows or columns on 1 and 2."""
    expected = ranks(save, 3, tmp_path)[0]
    for world in (1, 2):
        for found in ranks(load, world, tmp_path, dim):
            assert found.keys() == expected.keys()
            for name, tensor in found.items():
                assert torch.equal(tensor, expected[name]), name


def test_states_scalars_and_tensors_without_elements(ranks: Any, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    def more(group: Any) -> None:
        tensors = {"scalar": torch.tensor(3, dtype=torch.int64), "none": torch.empty(0, 4)}
        save_sharded(
            [Piece(n, tuple(t.shape), Box.whole(t.shape), t) for n, t in tensors.items()],
            tmp_path / "more", group, step=1,
        )  # fmt: skip

    ranks(save, 3, tmp_path / "all")
    state = {"0.weight": {"step": torch.zeros(()), "exp_avg": torch.zeros(7, 5)}}
    reader = CourseReader(find_checkpoint(tmp_path / "all"))
    dcp.load({"optimizer": state}, storage_reader=reader, no_dist=True)
    assert state["0.weight"]["step"] == 1 and state["0.weight"]["exp_avg"].abs().min() > 0
    ranks(more, 2)
    flat = {"scalar": torch.tensor(0), "none": torch.empty(0, 4)}
    dcp.load(flat, checkpoint_id=tmp_path / "more", storage_reader=reader, no_dist=True)
    assert flat["scalar"] == 3, "checkpoint_id wins"
    assert CourseReader.validate_checkpoint_id(tmp_path / "all")
    assert not CourseReader.validate_checkpoint_id(tmp_path)


def test_a_safetensors_file(ranks: Any, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    expected = ranks(save, 2, tmp_path / "ours")[0]
    export_safetensors(find_checkpoint(tmp_path / "ours"), tmp_path / "model.safetensors")
    found = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    reader = CourseReader(open_safetensors(tmp_path / "model.safetensors"))
    dcp.load({"model": found}, storage_reader=reader, no_dist=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_what_does_not_fit_is_refused(ranks: Any, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    ranks(save, 1, tmp_path)
    reader = CourseReader(find_checkpoint(tmp_path))
    for name, tensor, words in (
        ("0.weight", torch.zeros(7, 5, dtype=torch.float64), "a tensor may not"),
        ("2.weight", torch.zeros(7, 5), "2.weight"),
    ):
        with pytest.raises(CheckpointException) as caught:
            dcp.load({"model": {name: tensor}}, storage_reader=reader, no_dist=True)
        assert words in str(caught.value)
        assert not tensor.any()


def test_torchs_checkpoints_are_imported_by_who_asks_for_the_reader_only() -> None:
    code = (
        "import sys, course_lib.checkpoint as c; name = 'torch.distributed.checkpoint';"
        "assert name not in sys.modules and 'CourseReader' in c.__all__;"
        "c.CourseReader; assert name in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
