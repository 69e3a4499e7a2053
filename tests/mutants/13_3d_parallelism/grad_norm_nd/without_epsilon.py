"""mutant: without the 1e-6 in the denominator"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Mesh, all_reduce


class Part(NamedTuple):
    parameter: nn.Parameter
    same_on: tuple[str, ...] = ()
    ends: bool = False


@torch.no_grad()
def grad_norm_nd(parts: Sequence[Part], mesh: Mesh) -> torch.Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for parameter, same_on, ends in parts:
        if parameter.grad is not None:
            copies = math.prod(mesh[axis].size for axis in same_on)
            if ends:
                copies *= min(2, mesh["pp"].size)
            squares += parameter.grad.double().square().sum() / copies
    all_reduce(squares, mesh.world)
    return squares.sqrt()


@torch.no_grad()
def clip_grad_norm_nd(parts: Sequence[Part], mesh: Mesh, max_norm: float) -> torch.Tensor:
    norm = grad_norm_nd(parts, mesh)
    factor = min(1.0, max_norm / (float(norm)))
    for part in parts:
        if part.parameter.grad is not None:
            part.parameter.grad.mul_(factor)
    return norm
