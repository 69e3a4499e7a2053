"""finalize_grads: sum each gradient over the right axes of a mesh, and divide by the right number.

Notebook 13. After the backwards of a step, each rank of a mesh pp × dp × ep × cp × tp has the
gradients from its own tokens, but the loss to train is that of the whole batch. D = dp · ep · cp
ranks have different tokens, and each of them ran backward from

    D · (sum of the losses of the rank's own tokens) / (number of tokens of the whole batch)

so that the batch's loss is the *mean* of these D losses. Two ranks that differ in only one axis:

    dp, cp   have other tokens of the batch, and the same parameters
    ep       have other tokens, and other experts; all other parameters are the same. Tokens travel
             to their experts: what an expert's gradient holds is the *sum* over the losses of all
             ranks of ep
    pp       have other layers
    tp       have the same tokens, and other parts of each matrix

There are four kinds of parameters:

    expert   an expert's matrix, or this rank's part of it
    other    any other matrix, or this rank's part of it
    norm     the weight of a norm over the whole width (not of queries or keys), which all ranks of
             tp have whole. With sequence parallelism each of them has normalised its own part of
             the positions, and has the gradient of these alone. Without it each has normalised all,
             and all have the same gradient
    tied     embedding and output layer in one: one weight (this rank's part of it) which the first
             and the last stage of pp both have, and use. Its gradient is the sum of both uses

First write the rule, `reduce_plan`: it returns for one kind a list of reductions. Each reduction
sums over the ranks that differ only in the named axes, and then divides by a number. The rule needs
only sizes, so it can be checked on twelve meshes of 8 ranks without starting a process. Then
`finalize_grads` does what the plans say, with real collectives.

Rules
- After the call, every parameter that requires a gradient has the gradient of the whole batch's
  loss, on every rank that has the parameter. Frozen parameters keep None.
- A gradient that is None counts as zeros and takes part, because another rank may have one. Any
  other is changed in place: it stays the same tensor, which need not be contiguous.
- Each gradient is sent once for each reduction that it needs, in its own dtype: for S bytes over N
  ranks, that is 2(N-1)/N·S bytes. One all-reduce per parameter is allowed.

You may use all of `course_lib.comm`. `mesh[axes]` is this rank's group along some axes, and
`mesh.sizes` the sizes of all five. Groups on single axes, on dp × ep × cp and on dp × cp exist
already; any other is made when it is first asked for, and then all ranks of the mesh must ask for
it. `all_reduce(tensor, group)` sums in place; in a group of one it changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)  # in the place of axes: the first and the last index of pp, and no other


class Reduction(NamedTuple):
    """Sums over the ranks that differ only in these axes, then divides."""

    axes: tuple[str, ...]  # of dp, ep, cp, tp; or ENDS
    divisor: int


class Held(NamedTuple):
    """A parameter of this rank."""

    parameter: nn.Parameter
    kind: str  # "norm", "tied", "expert" or "other"


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    """Returns the reductions that make a gradient that of the whole batch's loss.

    Args:
        kind: of the parameter.
        sizes: of the axes pp, dp, ep, cp and tp, all five.
        sequence: whether there is sequence parallelism over tp.

    Returns:
        The reductions, in order. They may name axes of size 1, and ENDS if there is only one stage:
        these change nothing.
    """
    # BEGIN SOLUTION: who has another part of this gradient?
    plan = []
    if kind == "norm" and sequence:  # mutate: same
        plan.append(Reduction(("tp",), 1))
    if kind == "tied" and sizes["pp"] > 1:  # mutate: same
        plan.append(Reduction(ENDS, 1))
    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    # An expert's gradient holds the losses of ep already: D of them are in the sum in any case.
    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
    # END SOLUTION


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    """Turns this rank's gradients into those of the whole batch's loss, in place; collective.

    Args:
        held: this rank's parameters; ranks that share some have them in the same order.
        mesh: this rank's mesh.
        ends: the two ranks that have the same tied weight, on the first and the last stage; None on
            other stages, and if there is only one stage.
        sequence: as for `reduce_plan`.
    """
    # BEGIN SOLUTION: do what the plans say
    for parameter, kind in held:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
            group = ends if axes == ENDS else mesh[axes]
            all_reduce(parameter.grad, group)  # mutate: same
            parameter.grad.div_(divisor)
    # END SOLUTION
