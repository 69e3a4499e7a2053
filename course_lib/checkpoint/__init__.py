"""Less memory for activations, and a training that survives its processes."""

from typing import TYPE_CHECKING, Any

from course_lib.checkpoint.activation import Recompute, checkpoint, checkpoint_module
from course_lib.checkpoint.boxes import Box, boxes_of_range
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.layouts import (
    Held,
    cut_by_zero,
    hold_fsdp,
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
from course_lib.checkpoint.safetensors import export_safetensors, open_safetensors
from course_lib.checkpoint.save import AsyncSaver, save_sharded
from course_lib.checkpoint.segments import (
    Segment,
    SegmentPlan,
    best_segments,
    peak_memory,
    segments_sqrt,
)
from course_lib.checkpoint.selective import (
    StepCost,
    keep_products,
    korthikanti_bytes,
    measure_step,
    selective,
)
from course_lib.checkpoint.store import complete_steps, latest
from course_lib.checkpoint.torch_format import open_torch_checkpoint

if TYPE_CHECKING:
    from course_lib.checkpoint.torch_reader import CourseReader

__all__ = [
    "AsyncSaver",
    "Box",
    "Checkpoint",
    "CheckpointError",
    "CourseReader",
    "Held",
    "Piece",
    "Recompute",
    "Resumed",
    "Segment",
    "SegmentPlan",
    "Stateful",
    "StepCost",
    "Training",
    "best_segments",
    "boxes_of_range",
    "checkpoint",
    "checkpoint_module",
    "complete_steps",
    "cut_by_zero",
    "export_safetensors",
    "find_checkpoint",
    "hold_fsdp",
    "hold_tensor_parallel",
    "hold_whole",
    "hold_zero",
    "keep_products",
    "korthikanti_bytes",
    "latest",
    "load_resharded",
    "make_states",
    "measure_step",
    "model_pieces",
    "open_checkpoint",
    "open_safetensors",
    "open_torch_checkpoint",
    "optimizer_pieces",
    "peak_memory",
    "resume_training",
    "save_sharded",
    "save_training",
    "segments_sqrt",
    "selective",
]


def __getattr__(name: str) -> Any:
    """`CourseReader`, whose import takes most of a second, when it is asked for."""
    if name == "CourseReader":
        from course_lib.checkpoint.torch_reader import CourseReader

        return CourseReader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
