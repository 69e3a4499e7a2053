"""Gather a sharded weight in 8 bits, one byte per number, with a scale that all ranks agree on.

Notebook 09. ZeRO-3 keeps a part of each weight on every rank, and gathers the whole weight before
it is used, twice a step. A layer that multiplies 8-bit numbers then quantizes the weight at once,
so it may as well be sent in 8 bits: that takes a quarter of float32's bytes and half of bf16's.

    number ≈ 8-bit number · scale        scale = largest magnitude / 448, the largest number of e4m3

But the largest magnitude of the whole weight is known to no rank before the gather. If each rank
used its own scale, the same 8-bit number would mean different things in different rows. So the
ranks first agree with an all-reduce of one number, and then each quantizes its own part.

Rules
- `shard` is this rank's part, as large as that of every other rank, with one dim or more: a flat
  piece, rows of a matrix, or some of the experts' matrices. It may be float32 or bf16, a parameter
  that requires a gradient, and not contiguous. It is not changed.
- The function returns (data, scale), bit for bit the same on every rank: the whole weight in 8
  bits, with the parts in the order of `group.index` along dim 0, and the scale of the whole weight,
  a float32 tensor without dims. No gradient flows through them.
- Compute in float32: divide by the scale, then cast. The scale of a weight of zeros is 1; one
  rank's part may be zeros while the others' are not.
- The ranks make an all-reduce of 4 bytes and an all-gather of one byte per number, and send nothing
  else.

You may use all of `course_lib.comm`, for example `all_reduce(tensor, group, "max")`, in place, and
`all_gather(output, input, group)`. gloo cannot send 8-bit floats, so send them as bytes:
`data.view(torch.uint8)` is the same memory, and `.view(torch.float8_e4m3fn)` turns it back.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_gather, all_reduce

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Gathers a weight of which each rank has a part, in 8 bits; collective.

    Args:
        shard: this rank's part, [R, ...].
        group: the ranks that share the weight.

    Returns:
        The whole weight in e4m3, [N·R, ...], and its scale.
    """
    raise NotImplementedError("fp8_all_gather: write your answer here")
