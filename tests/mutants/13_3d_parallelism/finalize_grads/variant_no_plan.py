"""variant: the calls are written out, without the plan"""

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
    data = mesh["dp", "ep", "cp"]
    for parameter, kind in held:
        if parameter.requires_grad:
            total = parameter.new_zeros(parameter.shape)
            if parameter.grad is not None:
                total += parameter.grad
            if kind == "norm" and sequence:
                all_reduce(total, mesh["tp"])
            if kind == "tied" and ends is not None:
                all_reduce(total, ends)
            all_reduce(total, mesh["dp", "cp"] if kind == "expert" else data)
            parameter.grad = total / data.size
