"""variant: torch's own norms in float64, ring all-reduce"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, ring_all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    def square(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
        return torch.stack([torch.zeros((), dtype=torch.float64), *norms]).norm() ** 2

    total = square(sharded)
    ring_all_reduce(total, group)
    norm = float((total + square(replicated)) ** 0.5)
    if norm > max_norm:
        for gradient in [*sharded, *replicated]:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
