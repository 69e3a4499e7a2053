"""scale_by_present: the mean over the ranks that took part in a step.

Notebook 17. All members of a quorum call the same collectives, including a rank that heals and has
no gradient yet. Its tensor must not count, neither in the sum nor in the number of ranks that the
sum is divided by.

`scale_by_present(tensor, present, group)`
- replaces `tensor` in place on every rank, present or not, by the mean over the ranks on which
  `present` is true;
- returns the number of these ranks, an int;
- leaves zeros on every rank and returns 0 if no rank is present.

Rules
- An absent rank's tensor may hold anything: zeros, garbage, NaN, infinity. It must not matter.
- Every rank makes the same calls, present or not; otherwise the others would wait for it.
- The tensor has any shape and one floating dtype, which the result keeps, and may be strided. At
  most one all-reduce of the tensor and one of a number may be sent, and nothing else. (Both in one
  would count in the tensor's dtype, and bfloat16 counts only to 256.)

You may use all of `course_lib.comm`; `all_reduce(tensor, group)` sums in place.

Your answer may use `comm` of `course_lib`.
"""

import torch

from course_lib.comm import Group, all_reduce


def scale_by_present(tensor: torch.Tensor, present: bool, group: Group) -> int:
    """Replaces `tensor` by the mean over the present ranks; collective.

    Args:
        tensor: has the same shape and dtype on all ranks; afterwards it holds the mean.
        present: whether this rank's tensor counts.
        group: all members of the quorum.
    """
    raise NotImplementedError("scale_by_present: the mean")
