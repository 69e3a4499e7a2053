"""Error feedback: what a compressor drops is kept, and sent later.

Notebook 18. A compressor C makes a short message of a vector, and the receiver takes D(C(v)) for v.
What is lost need not be lost for good: each rank keeps it, and adds it to its next gradient g.

    owed = g + error;   error  ←  owed - D(C(owed));   result = mean over the ranks of D(C(owed))

Over all steps the errors cancel: the sum of what was sent is the sum of the gradients, less the
last error.

Rules
- `compressor.compress(vector)` is a list of tensors, whose shapes depend on the vector's length
  alone; `compressor.decompress(list, like)` is the vector that a receiver makes of it. `like` has
  the vector's length and dtype.
- `error` is this rank's own; before the first step it is zero. The gradient stays as it is.
- Only messages travel: (N-1) times their bytes are sent by each rank. Two messages cannot be added
  up, so they are gathered. All ranks add up in the order of the group, so that their results are
  equal to the bit.

Free to use: torch, and all of `course_lib.comm`; `all_gather(output, input, group)`.

Your answer may use `comm` of `course_lib`.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_gather


class ErrorFeedback:
    """The mean of compressed gradients, with a memory.

    Args:
        compressor: has `compress` and `decompress`.

    Attributes:
        error: what this rank has not sent so far; None or zeros before the first step.
    """

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        """About the mean over the group.

        Args:
            gradient: this rank's, [n].
            group: the ranks.

        Returns:
            The mean of what arrives, [n].
        """
        raise NotImplementedError("error_feedback: compress what is owed, and keep what is not sent")
