"""Saved state: a training that survives its processes, and goes on in any layout."""

from typing import TYPE_CHECKING, Any

from course_lib.checkpoint.boxes import Box, boxes_of_range
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.store import complete_steps, latest
from course_lib.checkpoint.formats.safetensors import export_safetensors, open_safetensors
from course_lib.checkpoint.formats.torch_format import open_torch_checkpoint
from course_lib.checkpoint.layouts import (
    Held,
    cut_by_zero,
    hold_fsdp,
    hold_stage,
    hold_tensor_parallel,
    hold_whole,
    hold_zero,
    make_states,
    model_pieces,
    optimizer_pieces,
)
from course_lib.checkpoint.load import (
    Checkpoint,
    find_checkpoint,
    load_resharded,
    open_checkpoint,
)
from course_lib.checkpoint.plan import Piece
from course_lib.checkpoint.resume import Resumed, Stateful, Training, resume_training, save_training
from course_lib.checkpoint.save import AsyncSaver, save_sharded

if TYPE_CHECKING:
    from course_lib.checkpoint.formats.torch_reader import CourseReader

__all__ = [
    "AsyncSaver",
    "Box",
    "Checkpoint",
    "CheckpointError",
    "CourseReader",
    "Held",
    "Piece",
    "Resumed",
    "Stateful",
    "Training",
    "boxes_of_range",
    "complete_steps",
    "cut_by_zero",
    "export_safetensors",
    "find_checkpoint",
    "hold_fsdp",
    "hold_stage",
    "hold_tensor_parallel",
    "hold_whole",
    "hold_zero",
    "latest",
    "load_resharded",
    "make_states",
    "model_pieces",
    "open_checkpoint",
    "open_safetensors",
    "open_torch_checkpoint",
    "optimizer_pieces",
    "resume_training",
    "save_sharded",
    "save_training",
]


def __getattr__(name: str) -> Any:
    """`CourseReader`, whose import takes most of a second, when it is asked for."""
    if name == "CourseReader":
        from course_lib.checkpoint.formats.torch_reader import CourseReader

        return CourseReader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
