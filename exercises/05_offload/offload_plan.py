"""offload_plan: for each layer's activations: keep them, compute them again, or move them away.

Notebook 05. Open: there is no right answer.

Forward goes through the layers, backward back. Activations take room from their forward's begin to
their backward's end, but
- "again": not between; the backward begins with the forward once more;
- a whole number k: not from the end of a copy to the host, made after the forward, to the begin of
  a copy back, made once layer i + k + 1's backward has ended (if there is none, all forwards). The
  backward waits for it. A copy takes sizes[i] / `rate`; each direction makes one at a time, in the
  passes' order.

Valid is "keep", "again" or k for each layer:
- never more than `budget` bytes;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the time over that with all kept; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from itertools import combinations, product

Choice = str | int


def offload_plan(
    forward: Sequence[int], backward: Sequence[int], sizes: Sequence[int], budget: int, rate: int
) -> list[Choice]:
    """What is done with each layer's activations.

    Args:
        forward: µs of each layer.
        backward: µs of each layer.
        sizes: bytes of each layer's activations.
        budget: bytes on the device, enough for any one layer.
        rate: bytes in a µs over the link, in each direction.
    """
    raise NotImplementedError("offload_plan: the plan")
