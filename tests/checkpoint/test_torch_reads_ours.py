"""torch.distributed.checkpoint loads what this library has saved, through a storage reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader

from course_lib.checkpoint import (
    Box,
    Piece,
    find_checkpoint,
    hold_fsdp,
    model_pieces,
    save_sharded,
)
from course_lib.checkpoint.manifest import DTYPES
from course_lib.parallel import FSDP


class CourseReader(StorageReader):
    """Our boxes are torch's chunks: what it asks for is a piece to be filled."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = find_checkpoint(folder)

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept from one load to the next."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        manifest = self.checkpoint.manifest
        return Metadata(
            {
                name: TensorStorageMetadata(
                    TensorProperties(dtype=DTYPES[entry.dtype]),
                    torch.Size(entry.shape),
                    [
                        ChunkStorageMetadata(torch.Size(p.box.offsets), torch.Size(p.box.sizes))
                        for p in manifest.by_tensor[name]
                    ],
                )
                for name, entry in manifest.tensors.items()
            }
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, **_: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        for item in plan.items:
            name, chunk = item.storage_index.fqn, item.storage_index.offset
            assert chunk is not None
            offsets = tuple(c + o for c, o in zip(chunk, item.storage_offsets, strict=True))
            target = planner.resolve_tensor(item).detach()
            shape = self.checkpoint.manifest.tensors[name].shape
            self.checkpoint.read([Piece(name, shape, Box(offsets, tuple(item.lengths)), target)])
            planner.commit_tensor(item, target)
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True


def model_of() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def test_torch_loads_fsdps_shards_into_its_own(ranks: Any, tmp_path: Path) -> None:
    """Saved from our FSDP on 3 ranks, loaded into DTensors of rows on 2, in whole on 1."""

    def save(group: Any) -> None:
        save_sharded(model_pieces(hold_fsdp(FSDP(model_of(), group))), tmp_path, group, step=2)

    def load(group: Any) -> dict[str, torch.Tensor]:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (group.size,))
        state = {
            name: distribute_tensor(torch.zeros_like(tensor), mesh, [Shard(0)])
            for name, tensor in model_of().state_dict().items()
        }
        dcp.load({"model": state}, storage_reader=CourseReader(tmp_path))
        return {name: tensor.full_tensor() for name, tensor in state.items()}

    ranks(save, 3)
    for world in (1, 2):
        for found in ranks(load, world):
            for name, tensor in model_of().state_dict().items():
                assert torch.equal(found[name], tensor), name
