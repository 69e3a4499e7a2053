"""Degrees on the five axes: what a layout is, and the one place that knows which are possible."""

from course_lib.layout.layout import PRECISIONS, RECOMPUTE, Layout
from course_lib.layout.rules import Sizes, cut_misfits, misfits, tokens_of_ranks, uneven_batch

__all__ = [
    "PRECISIONS", "RECOMPUTE", "Layout", "Sizes", "cut_misfits", "misfits", "tokens_of_ranks",
    "uneven_batch",
]  # fmt: skip
