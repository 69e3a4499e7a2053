"""Predictions held against runs that others have published."""

from course_lib.plan.published.published import predict
from course_lib.plan.published.scores import (
    micro_batch_ratios,
    of_set,
    recompute_ratios,
    rows,
    schedule_pairs,
    score,
)

__all__ = [
    "micro_batch_ratios",
    "of_set",
    "predict",
    "recompute_ratios",
    "rows",
    "schedule_pairs",
    "score",
]
