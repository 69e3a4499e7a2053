"""Lets torch.distributed.checkpoint read this room's checkpoints: our boxes are its chunks.

Notebook: 11 Distributed checkpoint (interchange).
Source: torch.distributed.checkpoint, files storage.py and metadata.py (version 2.13).
Costs what `load_resharded` does, and what dcp.load itself sends to agree on a plan.
The production version (FileSystemReader) unpickles an index and reads with several threads.

    dcp.load({"model": state}, storage_reader=CourseReader(open_checkpoint(folder, group)))

The one file outside of comm and ranks that imports torch.distributed: torch's planner asks for
its own classes. It communicates nothing, and is imported only by who uses it.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader

from course_lib.checkpoint.boxes import Box
from course_lib.checkpoint.files.manifest import DTYPES
from course_lib.checkpoint.files.store import complete_steps
from course_lib.checkpoint.load import Checkpoint, find_checkpoint
from course_lib.checkpoint.plan import Piece


class CourseReader(StorageReader):
    """A storage reader for `dcp.load`, into tensors and DTensors of any placement.

    Args:
        checkpoint: the same on every rank, as `open_checkpoint` gives it; also a safetensors file,
            from `open_safetensors`.

    Raises (in dcp.load, inside its CheckpointException):
        CheckpointError: a tensor is of another dtype than it was saved in, or a file is damaged.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def reset(self, checkpoint_id: str | PathLike[str] | None = None) -> None:
        """A load begins; `checkpoint_id`, if there is one, is a folder, whose newest is taken."""
        if checkpoint_id is not None:
            self.checkpoint = find_checkpoint(str(checkpoint_id))

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Shapes, dtypes and boxes of all tensors."""
        manifest = self.checkpoint.manifest
        found: dict[str, Any] = {}
        for name, entry in manifest.tensors.items():
            boxes = [piece.box for piece in manifest.by_tensor[name]] or [Box.whole(entry.shape)]
            found[name] = TensorStorageMetadata(
                TensorProperties(dtype=DTYPES[entry.dtype]),
                torch.Size(entry.shape),
                [ChunkStorageMetadata(torch.Size(b.offsets), torch.Size(b.sizes)) for b in boxes],
            )
        return Metadata(found)

    def set_up_storage_reader(self, *_: Any, **__: Any) -> None:
        """Nothing to do: the files are opened when they are read."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Takes the planner's plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Takes the planner's plans as they are: each rank reads for itself."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Fills what the plan asks for; done when it returns."""
        targets = [planner.resolve_tensor(item).detach() for item in plan.items]
        pairs = list(zip(plan.items, targets, strict=True))
        self.checkpoint.read([self._piece(item, target) for item, target in pairs])
        for item, target in pairs:
            planner.commit_tensor(item, target)
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done

    def _piece(self, item: ReadItem, target: torch.Tensor) -> Piece:
        """A part of a chunk, as a box of the whole tensor."""
        name, chunk = item.storage_index.fqn, item.storage_index.offset or ()
        offsets = tuple(c + o for c, o in zip(chunk, item.storage_offsets, strict=True))
        shape = self.checkpoint.manifest.tensors[name].shape
        return Piece(name, shape, Box(offsets, tuple(item.lengths)), target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        """Whether it is a folder with a complete checkpoint."""
        return bool(complete_steps(str(checkpoint_id)))
