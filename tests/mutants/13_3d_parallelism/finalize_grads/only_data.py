"""mutant: gradient of embedding on pp 3 × dp 2, these were not added up over ends"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)


class Reduction(NamedTuple):
    axes: tuple[str, ...]
    divisor: int


class Held(NamedTuple):
    parameter: nn.Parameter
    kind: str


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    plan = []
    if kind == "norm" and sequence:
        plan.append(Reduction(("tp",), 1))
    if kind == "tied" and sizes["pp"] > 1:
        plan.append(Reduction(ENDS, 1))
    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    for parameter, kind in held:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence)[-1:]:
            group = ends if axes == ENDS else mesh[axes]
            all_reduce(parameter.grad, group)
            parameter.grad.div_(divisor)
