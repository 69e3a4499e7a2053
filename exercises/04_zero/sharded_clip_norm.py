"""Clip gradients that lie in shards: one norm for the whole model, one small all-reduce.

Notebook 04. Clipping scales all gradients by the same factor if their norm, taken over all elements
of all parameters, is above a limit. With ZeRO and FSDP a rank has only its shards, and their norm
is different on every rank. Each rank would then clip its part of the gradient by a different
factor, and nothing would report it. Squares add up, norms do not.

Rules:

- `sharded` holds this rank's shards; each of their elements is on no other rank of the group.
  Shards have different sizes, a rank's list may be empty, and padding is zeros.
- `replicated` holds gradients that every rank of the group has, with the same values: those of a
  LayerNorm, for example, that was not worth cutting. Each counts once in the norm.
- Return the 2-norm of all gradients before clipping, the same float on every rank. If one rank has
  an infinity or a NaN, the norm is infinite or NaN on every rank.
- If the norm is above `max_norm`, multiply every gradient in place by max_norm / (norm + 1e-6), as
  torch.nn.utils.clip_grad_norm_ does; otherwise no gradient changes by a single bit. (Within 1e-6
  of the limit torch's factor is below 1 already: there, both are right. An infinite norm is above
  every limit, so finite gradients become 0. NaN is above none, so nothing changes, where torch
  makes all gradients NaN.)
- Gradients may be float32 or bfloat16 and keep their dtype. Their squares may be too large for
  these dtypes, so add them up in float64.
- Every rank makes one all-reduce of one number, however small its own norm is.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: the gradients that all ranks have; may be empty.
        max_norm: the largest norm that is allowed.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    raise NotImplementedError("sharded_clip_norm: write your answer here")
