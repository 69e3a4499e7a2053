"""Weights that are computed with in 8 bits may as well be gathered in 8 bits: half of bfloat16.

Notebook: 09 Mixed precision and FP8 (fp8_all_gather).
Paper: Peng et al., "FP8-LM: Training FP8 Large Language Models" (2023), section 2.3; torchao's
float8 all-gather for FSDP2.
Costs for a weight of n numbers: an all-reduce MAX of one float32, and then an all-gather of
(N-1)/N·n bytes a rank.
The production version finds the scales of all weights after the optimizer's step, in one
all-reduce, so that no gather has to wait for one.
"""

from __future__ import annotations

import torch

from course_lib.comm import Group, all_gather, all_reduce
from course_lib.precision.formats import E4M3FN, Format
from course_lib.precision.scaling import Scaled, block_amax, quantize, scale_for, whole


def fp8_all_gather(shard_RC: torch.Tensor, group: Group, format: Format = E4M3FN) -> Scaled:
    """Collects a weight of which each rank has some rows, in 8 bits.

    All ranks must divide by the same scale, or rows of one weight would mean different things: it
    is agreed first. Quantizing the result again, as `fp8_linear` does, changes nothing: its largest
    number is the largest of the format already.

    Args:
        shard_RC: this rank's rows, floats, as many on every rank; `flat[None]` for a flat shard.
        group: the ranks that share the weight.
        format: of 8 bits; moved as bytes where the backend knows no such floats, as gloo.

    Returns:
        The whole, [N·R, C] with one scale, on every rank.
    """
    shard_RC = shard_RC.detach()
    amax = block_amax(shard_RC, whole(shard_RC)).sum().view(1, 1)  # the one there is, or none: 0
    all_reduce(amax, group, "max")
    mine = quantize(shard_RC, format, scale_for(amax, format), whole(shard_RC))
    rows, columns = shard_RC.shape
    data = mine.data.new_empty(group.size * rows, columns)
    all_gather(data, mine.data.contiguous(), group)
    return Scaled(data, mine.scale, whole(data))
