"""Activation checkpointing: forget what a block saved for its backward, and compute it again."""

from course_lib.recompute.checkpoint import RandomState, Recompute, checkpoint, checkpoint_module
from course_lib.recompute.segments import (
    Segment,
    SegmentPlan,
    best_segments,
    peak_memory,
    segments_sqrt,
)
from course_lib.recompute.selective import (
    StepCost,
    keep_products,
    korthikanti_bytes,
    measure_step,
    selective,
)

__all__ = [
    "RandomState",
    "Recompute",
    "Segment",
    "SegmentPlan",
    "StepCost",
    "best_segments",
    "checkpoint",
    "checkpoint_module",
    "keep_products",
    "korthikanti_bytes",
    "measure_step",
    "peak_memory",
    "segments_sqrt",
    "selective",
]
