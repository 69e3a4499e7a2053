"""The optimizer's state in a checkpoint of torch's: found under our names, or missed aloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.checkpoint import (
    CheckpointError,
    hold_fsdp,
    hold_whole,
    make_states,
    model_pieces,
    open_torch_checkpoint,
    optimizer_pieces,
)
from course_lib.parallel import FSDP


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, group: Any, seed: int) -> None:
    batch = torch.randn(12, 5, generator=torch.Generator().manual_seed(seed)).double()
    optimizer.zero_grad()
    model(batch.chunk(group.size)[group.index]).pow(2).mean().backward()
    optimizer.step()


def save_by_torch(group: Any, folder: Path, key: str, named: bool) -> Any:
    """Two steps of FSDP2; the checkpoint after the first, the weights after the second."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard

    model = model_of()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step(model, optimizer, group, 1)
    states = get_optimizer_state_dict(model, optimizer) if named else optimizer.state_dict()
    dcp.save({"model": model.state_dict(), key: states}, checkpoint_id=folder)
    step(model, optimizer, group, 2)
    return {n: t.full_tensor() for n, t in model.state_dict().items()}


def load_by_us(group: Any, folder: Path, cut: bool) -> Any:
    model: Any = model_of()
    if cut:
        model = FSDP(model, group, [model[0]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    held = hold_fsdp(model) if cut else hold_whole(model)
    checkpoint = open_torch_checkpoint(folder)
    try:
        make_states(held, optimizer, checkpoint.manifest)
    except CheckpointError as error:
        return str(error)
    checkpoint.read(model_pieces(held) + optimizer_pieces(held, optimizer))
    step(model, optimizer, group, 2)
    return model.full_state_dict() if cut else model.state_dict()


@pytest.mark.parametrize("key", ["optim", "optimizer"])
def test_a_training_of_torchs_goes_on(ranks: Any, tmp_path: Path, key: str) -> None:
    expected = ranks(save_by_torch, 2, tmp_path, key, True)[0]
    for world, cut in ((1, False), (2, True), (3, True)):
        for found in ranks(load_by_us, world, tmp_path, cut):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("key", ["optim", "optimizer"])
def test_states_without_names_are_missed(ranks: Any, tmp_path: Path, key: str) -> None:
    ranks(save_by_torch, 2, tmp_path, key, False)
    for text in ranks(load_by_us, 2, tmp_path, True):
        assert "the optimizer would begin again" in text and len(text.splitlines()) == 3, text
