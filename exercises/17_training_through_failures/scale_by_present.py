"""scale_by_present: the mean over the ranks that took part.

Notebook 17. In a quorum every member calls the same collectives, also one that heals and has no
gradient yet. What it would send must not count, neither above the line of the mean nor below it.

`scale_by_present(tensor, present, group)`
- replaces `tensor` on every rank by the mean over those ranks on which `present` is true, in place;
- returns how many these are, an int;
- if nobody is present, leaves zeros on every rank and returns 0.

Rules
- An absent rank's tensor may hold anything: zeros, garbage, NaN, infinity. It must not matter.
- Every rank makes the same calls, present or not: the others would wait for it.
- Tensor and result have one floating dtype, any shape, and perhaps strides. At most one all-reduce
  of the tensor and one of a number (or both in one); nothing else is sent.

Free to use: all of `course_lib.comm`; `all_reduce(tensor, group)` sums in place and wants a
contiguous tensor.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


def scale_by_present(tensor: torch.Tensor, present: bool, group: Group) -> int:
    """See above; collective.

    Args:
        tensor: of the same shape and dtype on all ranks; the mean afterwards.
        present: whether this rank's tensor counts.
        group: all members of the quorum.
    """
    raise NotImplementedError("scale_by_present: the mean")
