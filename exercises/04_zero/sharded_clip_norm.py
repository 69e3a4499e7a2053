"""Clip gradients that lie in shards: one norm for the whole model, one small all-reduce.

Notebook 04. Clipping scales all gradients by the same factor if their norm, taken over all elements
of all parameters, is above a limit. With ZeRO and FSDP a rank has only its shards, and the norm of
those is another number on every rank: each would clip by its own factor, and the model falls apart
unnoticed. Squares add up, norms do not.

Rules:

- `sharded` are this rank's shards: every element of these is on one rank of the group. Shards have
  different sizes, a rank's list may be empty, and padding is zeros.
- `replicated` are gradients that every rank of the group has, with the same values: a LayerNorm's,
  for example, that was not worth cutting. Each counts once.
- Returned is the 2-norm of all gradients before clipping, the same float on every rank; infinity or
  NaN on every rank if one rank has such a value.
- If it is above `max_norm`, every gradient is multiplied in place by max_norm / (norm + 1e-6), as
  torch.nn.utils.clip_grad_norm_ does; otherwise all stay as they are, to the bit.
- Gradients may be float32 or bfloat16 and keep their dtype; their squares may be larger than such a
  number can be, so add in float64.
- One all-reduce of one number, by every rank, however small its own norm is.

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
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    raise NotImplementedError("sharded_clip_norm: write your answer here")
