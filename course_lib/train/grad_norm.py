"""The norm of a model's gradients when the model lies on a mesh: every element counts once.

Notebook: 13 3D parallelism (grad_norm_nd).
Paper: Pascanu et al., "On the Difficulty of Training Recurrent Neural Networks" (2013), section
3.2, for clipping; Shoeybi et al., "Megatron-LM" (2019) for a norm over ranks that hold parts.
Costs an all-reduce of 8 bytes over all ranks, whatever the model and the mesh.
The production version (Megatron-core) counts only the first copy, and so must know which it is.

What a rank has is a part of the model. Some of it no other rank has (its columns of a matrix, its
stage, its shard), some is the same on several (a norm's weight on all ranks of tp). If c ranks have
the same gradient, each adds 1/c of its square, and the sum over all ranks is that of one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.parallel.data.accumulate import scale_down

Copies = Callable[[nn.Parameter], int]


@torch.no_grad()
def grad_norm_nd(parameters: Iterable[nn.Parameter], copies: Copies, group: Group) -> torch.Tensor:
    """The 2-norm of all gradients together, as if one process had them.

    Args:
        parameters: what this rank has: parameters, parts or pieces of them, each object once, with
            final gradients. Those without a gradient are left out.
        copies: how many ranks of the group have the same part of the same parameter.
        group: all ranks that have some part of the model.

    Returns:
        float64, the same on every rank. One all-reduce, 2(N-1)/N·8 bytes sent.
    """
    squares = torch.zeros((), dtype=torch.float64, device=group.device)
    for parameter in parameters:
        if parameter.grad is not None:
            square = torch.linalg.vector_norm(parameter.grad, dtype=torch.float64) ** 2
            squares += (square / copies(parameter)).to(group.device)
    all_reduce(squares, group)
    return squares.sqrt()


@torch.no_grad()
def clip_grad_norm_nd(
    parameters: Iterable[nn.Parameter], copies: Copies, group: Group, max_norm: float
) -> torch.Tensor:
    """Scales all gradients down together, in place, so that their norm is at most `max_norm`.

    Args:
        parameters: as for `grad_norm_nd`.
        copies: the same.
        group: the same.
        max_norm: what is allowed; `inf` scales nothing.

    Returns:
        The norm before clipping. The same number on every rank, so copies stay equal.
    """
    held = list(parameters)
    norm = grad_norm_nd(held, copies, group)
    if max_norm < math.inf:  # or inf/inf would make every gradient nan
        scale_down([p.grad for p in held if p.grad is not None], norm, max_norm)
    return norm
