"""Gather a sharded weight in 8 bits: one byte a number, and one scale that all ranks agree on.

Notebook 09. ZeRO-3 keeps a part of each weight on every rank, and gathers the whole before it is
used, twice a step. A layer that multiplies 8-bit numbers makes the weight 8 bits right afterwards,
so it may as well be 8 bits on its way: a quarter of float32's bytes, half of bf16's.

    number ≈ 8-bit number · scale        scale = largest magnitude / 448, the largest number of e4m3

But the largest magnitude of the whole weight is known to no rank before the gather. If each divided
by a scale of its own, one 8-bit number would mean other things in other rows. So the ranks agree
first: an all-reduce of one number, then everybody quantizes its own part.

Rules
- `shard` is this rank's part, as large as everybody's: rows of a matrix, or a flat piece. It may be
  float32 or bf16, a parameter that requires a gradient, and not contiguous. It is not changed.
- Back come (data, scale), the same bits on every rank: the 8-bit whole, parts in the order of
  `group.index` along dim 0, and the scale of the whole weight, a float32 tensor without dims. No
  gradient flows through them.
- Compute in float32: divide by the scale, then cast. The scale of a weight of zeros is 1; one
  rank's part may be zeros while the others' are not.
- On the wire are an all-reduce of 4 bytes and an all-gather of one byte a number, nothing else.

Allowed is all of `course_lib.comm`: `all_reduce(tensor, group, "max")`, in place, and
`all_gather(output, input, group)`. gloo moves no 8-bit floats, so send the bytes that they are:
`data.view(torch.uint8)` is the same memory, and `.view(torch.float8_e4m3fn)` is the way back.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_gather, all_reduce

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Collects a weight of which each rank has a part, in 8 bits.

    Args:
        shard: this rank's part, [R, ...].
        group: the ranks that share the weight.

    Returns:
        The whole in e4m3, [N·R, ...], and its scale.
    """
    raise NotImplementedError("fp8_all_gather: write your answer here")
