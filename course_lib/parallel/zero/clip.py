"""Clipping by the norm of gradients of which every rank has a part.

Notebook: 04 ZeRO (sharded_clip_norm).
Source: torch.nn.utils.clip_grad_norm_, of which this is the same for shards.
Costs an all-reduce of 8 bytes.
The production version (FSDP2) sends a norm for each gradient.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from course_lib.comm import Group, all_reduce


@torch.no_grad()
def clip_shards(
    gradients: Iterable[torch.Tensor],
    max_norm: float,
    group: Group,
    copies: Iterable[torch.Tensor] = (),
) -> torch.Tensor:
    """Scales gradients down together if their norm over all ranks is above `max_norm`.

    Args:
        gradients: this rank's pieces, real or complex; every element is on one rank of the group.
        max_norm: the largest norm that stays as it is.
        group: the ranks that have the other pieces.
        copies: gradients that all these ranks have alike; index 0 counts them.

    Returns:
        The norm before clipping, float64, the same on every rank.
    """
    mine, alike = list(gradients), list(copies)
    squares = torch.zeros((), dtype=torch.float64, device=group.device)
    for gradient in [*mine, *alike] if group.index == 0 else mine:
        parts = torch.view_as_real(gradient) if gradient.is_complex() else gradient
        squares += parts.double().pow(2).sum().to(squares.device)
    all_reduce(squares, group)
    norm = squares.sqrt()
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in [*mine, *alike]:
        gradient.mul_(scale.to(gradient.device))
    return norm
