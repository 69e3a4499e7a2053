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
    both = torch.stack([off_the_scale(gap), scale])
    all_reduce(both, group, "max")
    return off_the_scale(both[0] / both[1]).item() if both[0] else 0.0


def off_the_scale(gap: torch.Tensor) -> torch.Tensor:
    """Infinity for NaN, which the largest over ranks may leave out."""
    return torch.where(gap.isnan(), torch.inf, gap)
