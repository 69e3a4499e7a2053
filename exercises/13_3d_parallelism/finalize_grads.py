"""finalize_grads: which gradients are added up over which axis of a mesh, and divided by what.

Notebook 13. After the backwards of a step, each rank of a mesh pp × dp × ep × cp × tp has gradients
of what this rank has seen. What is trained is the loss of the whole batch. D = dp · ep · cp ranks
have different tokens, and the backward of each was one of

    D · (sum of the losses of the rank's own tokens) / (number of tokens of the whole batch)

so that the batch's loss is the *mean* of these D losses. Two ranks that differ in one axis alone:

    dp, cp   have other tokens of the batch, and the same parameters
    ep       have other tokens, and other experts; all other parameters are the same. Tokens travel
             to their experts: what an expert's gradient holds is the *sum* over the losses of all
             ranks of ep
    pp       have other layers
    tp       have the same tokens, and other parts of each matrix

There are four kinds of parameters:

    expert   an expert's matrix, or this rank's part of it
    other    any other matrix, or this rank's part of it
    norm     a norm's weight, which all ranks of tp have whole. With sequence parallelism each of
             them has normalised its own part of the positions, and has the gradient of these alone.
             Without it each has normalised all, and all have the same gradient
    tied     embedding and output layer in one: one weight (this rank's part of it) which the first
             and the last stage of pp both have, and use. Its gradient is the sum of both uses

First write the rule, `reduce_plan`: for one kind, a list of reductions, each of which adds up over
the ranks that differ in the named axes alone, and then divides by a number. It needs nothing but
sizes, so it can be tried on twelve meshes of 8 ranks without any process. Then `finalize_grads`
does what the plans say, with real collectives.

Rules
- After the call every parameter that requires a gradient has that of the whole batch's loss, on
  every rank that has it. Frozen parameters keep None.
- A gradient that is None counts as zeros, and takes part: another rank may have one.
- Each gradient travels once for each reduction that it needs, in its own dtype: S bytes over N
  ranks are 2(N-1)/N·S bytes sent. It may be one all-reduce a parameter.

Free to use: all of `course_lib.comm`. `mesh[axes]` is this rank's group along some axes, and
`mesh.sizes` the sizes of all five. Groups on single axes, on dp × ep × cp and on dp × cp have been
made; any other is made when it is first asked for, and then all ranks of the mesh must ask.
`all_reduce(tensor, group)` sums in place; in a group of one it changes nothing.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)  # in the place of axes: the first and the last index of pp, and no other


class Reduction(NamedTuple):
    """Add up over the ranks that differ in these axes alone, then divide."""

    axes: tuple[str, ...]  # of dp, ep, cp, tp; or ENDS
    divisor: int


class Held(NamedTuple):
    """A parameter of this rank."""

    parameter: nn.Parameter
    kind: str  # "norm", "tied", "expert" or "other"


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    """What makes a gradient that of the whole batch's loss.

    Args:
        kind: of the parameter.
        sizes: of the axes pp, dp, ep, cp and tp, all five.
        sequence: whether there is sequence parallelism over tp.

    Returns:
        Reductions, one after the other. Axes of size 1 may be named, and ENDS where there is one
        stage: they change nothing.
    """
    raise NotImplementedError("finalize_grads: who has another part of this gradient?")


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    """Makes this rank's gradients those of the whole batch's loss, in place; after backward.

    Args:
        held: this rank's parameters; ranks that share some have those in the same order.
        mesh: who is where.
        ends: the two ranks that have the same tied weight, on the first and the last stage; None
            on other stages, and where there is only one stage.
        sequence: as for `reduce_plan`.
    """
    raise NotImplementedError("finalize_grads: do what the plans say")
