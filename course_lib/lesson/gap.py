"""How far two lists of tensors are from each other, the largest gap on any rank."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from course_lib.comm import Group, all_reduce


@torch.no_grad()
def largest_gap(
    found: Iterable[torch.Tensor], exact: Iterable[torch.Tensor], group: Group
) -> float:
    """The largest difference of any element, as a part of the largest value; collective.

    Args:
        found: what a strategy has computed.
        exact: what one process has computed, in the same order and shapes.
        group: over whose ranks the largest is taken, with an all-reduce of two numbers.

    Returns:
        Infinity if a number on any rank is NaN; 0 if all are the same.
    """
    pairs = [(f, e) for f, e in zip(found, exact, strict=True) if e.numel()]
    gap = torch.stack([(f - e).abs().max() for f, e in pairs]).max()
    scale = torch.stack([e.abs().max() for _, e in pairs]).max()
    gap, scale = largest_over(group, torch.stack([gap, scale]))
    return (gap / scale if 0 < gap < torch.inf else gap).item()


def largest_over(group: Group, gaps: torch.Tensor) -> torch.Tensor:
    """The largest over the ranks, one all-reduce; a NaN, which that may leave out, is infinity."""
    largest = torch.where(gaps.isnan(), torch.inf, gaps)
    all_reduce(largest, group, "max")
    return largest
