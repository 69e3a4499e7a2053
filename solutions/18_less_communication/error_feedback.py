"""Error feedback: what a compressor drops is kept, and sent later.

Notebook 18. A compressor C makes a short message of a vector v, and the receiver uses D(C(v))
instead of v. The rest need not be lost for good: each rank keeps it, and adds it to its next
gradient g.

    owed = g + error;   error  ←  owed - D(C(owed));   result = mean over the ranks of D(C(owed))

Over all steps the errors cancel: the sum of what a rank sent is the sum of its gradients, minus its
last error.

Rules
- `compressor.compress(vector)` returns a list of tensors, whose shapes and dtypes depend only on
  the vector's length. `compressor.decompress(list, like)` returns the vector that a receiver makes
  of it; `like` is any vector of that length and dtype. The tensors of the message may be views of
  the vector. Call `compress` once in each step, because another call may give another message.
- `error` is this rank's own; before the first step it is zero. The gradient is not changed.
- Only messages are sent: each rank sends (N-1) times the bytes of its message. Compressed messages
  cannot be summed, so they are gathered. All ranks add the decompressed vectors in the order of the
  group, so that their results are equal bit for bit.

You may use torch and all of `course_lib.comm`, for example `all_gather(output, input, group)`.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_gather


class ErrorFeedback:
    """Averages compressed gradients, and keeps what was not sent.

    Args:
        compressor: has `compress` and `decompress`, as described above.

    Attributes:
        error: what this rank has not sent so far, [n]; None or zeros before the first step.
    """

    def __init__(self, compressor: Any) -> None:
        self.compressor = compressor
        self.error: torch.Tensor | None = None

    def mean(self, gradient: torch.Tensor, group: Group) -> torch.Tensor:
        """Returns approximately the mean over the group; collective.

        Args:
            gradient: this rank's own, [n].
            group: the ranks.

        Returns:
            The mean of the decompressed messages, [n], in a new tensor of the gradient's dtype.
        """
        # BEGIN SOLUTION: compress what is owed, and keep what is not sent
        owed = gradient if self.error is None else gradient + self.error
        parts = self.compressor.compress(owed)
        self.error = owed - self.compressor.decompress(parts, owed)
        everyone = [part.new_empty(group.size, *part.shape) for part in parts]
        for whole, part in zip(everyone, parts, strict=True):
            all_gather(whole, part, group)
        total = torch.zeros_like(owed)
        for index in range(group.size):
            total += self.compressor.decompress([whole[index] for whole in everyone], owed)
        return total / group.size
        # END SOLUTION
