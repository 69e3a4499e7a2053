"""variant: one message for each kind and reduction; new tensors as gradients"""

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
    for kind in ("norm", "tied", "expert", "other"):
        own = [p for p, its in held if its == kind and p.requires_grad]
        if not own:
            continue
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        flat = torch.cat([grad.flatten() for grad in grads])
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
            all_reduce(flat, ends if axes == ENDS else mesh[axes])
            flat /= divisor
        for parameter, part in zip(own, flat.split([p.numel() for p in own]), strict=True):
            parameter.grad = part.view(parameter.shape).clone()
