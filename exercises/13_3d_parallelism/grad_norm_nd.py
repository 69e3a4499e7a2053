"""grad_norm_nd: the norm of all gradients, if no rank has them all and some are on several ranks.

Notebook 13. Clipping needs one number: the norm of the gradients of the *whole* model, as one long
vector. On a mesh of pp × dp × tp, the model is divided into parts. Each rank of pp has its own
stage, and each rank of tp its own columns of a matrix. But some parts are on several ranks, with
the same gradient. Every gradient is already final (summed or averaged as it must be):

    what                                       same on      ranks that have the same part
    a matrix that tp cuts                      dp           dp
    a norm's weight, which tp leaves whole     dp, tp       dp × tp
    ZeRO's shard of a cut matrix               nothing      1
    ZeRO's shard of a norm's weight            tp           tp
    a tied embedding that tp cuts              dp, ends     dp × 2; dp if pp is 1

The last one is at both *ends* of the pipeline: on the first and the last rank of pp, and not in
between. If pp is 1, both are the same rank, which lists it once.

Each element of the model must count once: if c ranks have it, either each of them adds 1/c of its
square, or one adds all of it and the others nothing.

Write two functions:
1. `grad_norm_nd(parts, mesh)`: the 2-norm of all gradients of the model, a float64 tensor without
   dims on the CPU, the same on every rank. No gradient is changed.
2. `clip_grad_norm_nd(parts, mesh, max_norm)`: multiplies every gradient, in place, by min(1,
   max_norm / (norm + 1e-6)), and returns the norm before that.

Rules
- Compute and sum the squares in float64, whatever the gradient's dtype: the square of 300 is beyond
  float16. Gradients keep their dtype and their memory (they may be views of a bucket).
- A part whose gradient is None is left out. A rank may have no gradients, or no parts at all; it
  still needs the norm.
- Gradients are not sent: only numbers of 8 bytes are, and a single all-reduce of one number is
  enough. At most three are allowed, for example one for each axis, however many parts there are.

You may use all of `course_lib.comm`. `all_reduce(tensor, group, op="sum")` works in place;
`mesh.world` is the group of all ranks and `mesh["tp"]` this rank's group on an axis, with `size`,
`index`, `next`, ...

Your answer may use `comm` of `course_lib`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Mesh, all_reduce


class Part(NamedTuple):
    """A parameter of this rank, or its part of one.

    Attributes:
        parameter: its `grad` is final.
        same_on: the axes along which all ranks have this same part.
        ends: whether the first and the last rank of pp have it. Then "pp" is not in `same_on`.
    """

    parameter: nn.Parameter
    same_on: tuple[str, ...] = ()
    ends: bool = False


@torch.no_grad()
def grad_norm_nd(parts: Sequence[Part], mesh: Mesh) -> torch.Tensor:
    """Returns the 2-norm of all gradients together, as if one process had them; collective.

    Args:
        parts: this rank's parts, each once.
        mesh: with the axes pp, dp and tp.
    """
    raise NotImplementedError("grad_norm_nd: every element once")


@torch.no_grad()
def clip_grad_norm_nd(parts: Sequence[Part], mesh: Mesh, max_norm: float) -> torch.Tensor:
    """Scales all gradients down, in place, if their norm is above `max_norm`; collective.

    Args:
        parts: as above.
        mesh: as above.
        max_norm: the largest norm allowed for all gradients of the model together.

    Returns:
        The norm before.
    """
    raise NotImplementedError("grad_norm_nd: one factor for all")
