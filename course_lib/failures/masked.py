"""The mean over the ranks that took part: whoever was not there counts neither above nor below.

Notebook: 17 Training through failures (scale_by_present).
Source: torchft's managed all-reduce, in which a healing replica sends zeros.
Costs one all-reduce of the tensor and one number more: 2(N-1)/N·(S + w) bytes a rank.
The production version divides on the device, in a kernel that casts as well.
"""

from __future__ import annotations

import torch

from course_lib.comm import Group, all_reduce
from course_lib.trace import Refusal


def masked_mean(tensor: torch.Tensor, present: bool, group: Group) -> int:
    """Replaces `tensor` by the mean over the members that are present; collective.

    Args:
        tensor: this rank's, of one shape and floating dtype on all. What an absent rank has in it,
            garbage and NaN included, is not looked at.
        present: whether this rank's is to count.
        group: all members, present or not.

    Returns:
        How many counted. If it is 0, `tensor` is zeros on every rank: make no step with it.

    Raises:
        Refusal: the tensor holds integers, whose mean it could not hold, or complex numbers.
    """
    if not tensor.is_floating_point():
        why = "give it as floating-point numbers, a complex one by `torch.view_as_real`"
        raise Refusal(f"a mean in {tensor.dtype}", "no floating-point numbers", why)
    mine = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    if present:  # times 0 would not do: 0 · NaN is NaN
        mine[:-1] = tensor.reshape(-1)
        mine[-1] = 1.0
    all_reduce(mine, group)
    count = int(mine[-1].item())
    tensor.copy_(mine[:-1].view_as(tensor) / max(count, 1))
    return count
