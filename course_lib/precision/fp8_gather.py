"""Weights that are used in 8 bits can be gathered in 8 bits, half the bytes of bfloat16.

Notebook: 09 Mixed precision and FP8 (fp8_all_gather).
Paper: Peng et al., "FP8-LM: Training FP8 Large Language Models" (2023), section 2.3; torchao's
float8 all-gather for FSDP2.
Costs for weights of n numbers: an all-reduce MAX of a float32 for each weight, all in one message,
and then an all-gather of (N-1)/N·n bytes a rank.
The production version finds the scales of all weights after the optimizer's step, in one
all-reduce, so that no gather has to wait for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_gather, all_reduce
from course_lib.precision.formats import E4M3FN, Format
from course_lib.precision.fp8 import Fp8Linear
from course_lib.precision.scaling import Scaled, block_amax, quantize, scale_for, whole


def fp8_all_gather(shard_RC: torch.Tensor, group: Group, format: Format = E4M3FN) -> Scaled:
    """Gathers a weight in 8 bits; each rank has some of its rows.

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
    scale = _agreed_scales([shard_RC], group, format).view(1, 1)
    mine = quantize(shard_RC, format, scale, whole(shard_RC))
    rows, columns = shard_RC.shape
    data = mine.data.new_empty(group.size * rows, columns)
    all_gather(data, mine.data.contiguous(), group)
    return Scaled(data, scale, whole(data))


class Fp8Pack:
    """Lets FSDP gather the weights of `Fp8Linear` layers in 8 bits, and all else as it is.

        fp8_linears(model, CurrentScaling(), keep=["head"])
        FSDP(model, group, model.blocks, precision=Precision(pack=Fp8Pack(model)))

    The shards, and so the optimizer, keep the weights in their own dtype. Every weight has a scale
    of its own, the one that current scaling would find in the whole: with that recipe the layers
    compute the same as if nothing had been packed. Other recipes round once more.

    Args:
        module: whose layers; one that shares its weight with another kind of module, such as an
            embedding, is left out.
        format: of 8 bits.

    Attributes:
        parameters: the weights that are packed.
    """

    def __init__(self, module: nn.Module, format: Format = E4M3FN) -> None:
        self.format = format
        weights: set[nn.Parameter] = set()
        others: set[nn.Parameter] = set()
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                is_weight = isinstance(part, Fp8Linear) and name == "weight"
                (weights if is_weight else others).add(parameter)
        self.parameters = frozenset(weights - others)

    def __call__(
        self, parts: Sequence[torch.Tensor], group: Group
    ) -> tuple[list[torch.Tensor], Callable[[int, torch.Tensor], torch.Tensor]]:
        """Rounds this rank's parts of some weights; collective, see `Pack` in parallel.zero."""
        rows = [part[None] for part in parts]
        scales = _agreed_scales(rows, group, self.format)
        packed = [
            quantize(row, self.format, scale.view(1, 1), whole(row)).data[0]
            for row, scale in zip(rows, scales, strict=True)
        ]
        return packed, lambda number, data: data.float() * scales[number]


def _agreed_scales(parts: Sequence[torch.Tensor], group: Group, format: Format) -> torch.Tensor:
    """The scale of each weight whose parts the ranks have; collective, one all-reduce MAX."""
    # A part has one largest number, or none if it is empty, and then 0.
    amax = torch.stack([block_amax(part, whole(part)).sum() for part in parts])
    all_reduce(amax, group, "max")
    return scale_for(amax, format)
