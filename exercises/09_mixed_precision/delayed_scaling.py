"""delayed_scaling: scale a tensor by what it was in the last steps, the same on every rank.

Notebook 09. Before numbers become FP8 they are divided by a scale, so that the largest magnitude of
the tensor, its *amax*, becomes the largest number of the format: 448 for e4m3. To know the amax one
must read the whole tensor, and only then can one begin to write it in FP8. Delayed scaling saves
that second reading: tensors change slowly from step to step, so the scale comes from the amaxes of
the last steps, which are known beforehand. In the same pass in which it writes the FP8 numbers, the
kernel finds the amax of this step, for the steps to come. A tensor that has grown is clipped once.

Ranks that share a weight or sum products must scale alike, so they agree on the amaxes.

Rules:

- A scale *multiplies*: number = FP8 number · scale. It is a float: the largest amax of the last
  `length` steps that are over, divided by LARGEST. If nothing larger than 0 is known yet, it is 1.
- All calls of `quantize` for a tensor in one step (micro-batches) use the same scale. The tensor's
  amax in this step is the largest of all its calls on all ranks.
- `quantize` divides in float32, clips to ±LARGEST and casts to e4m3. It leaves `x` as it is. `x`
  may be bf16, not contiguous, or empty: an expert without tokens.
- `step` ends the step on all ranks, with one all-reduce for all tensors: 4 bytes a tensor. A rank
  may not have used a tensor in this step; the others may have. An amax of 0 is an amax like others.
- If a tensor had infinity or NaN in it on any rank, this step says nothing about its range, and its
  history stays as it is, on all ranks. What `quantize` gives for such numbers is free here. Mind
  that comparisons with NaN are always false, in `max` as well.
- Nothing else is sent. `course_lib.comm` is allowed.

Your answer may use `comm` of `course_lib`.
"""

from collections import deque
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce

LARGEST = 448.0  # of e4m3, torch.float8_e4m3fn


class DelayedScaling:
    """Scales for tensors that are quantized in every step.

    Args:
        names: of the tensors; the same on every rank, in the same order.
        length: how many steps are remembered.
        group: the ranks that must scale alike.
    """

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group = group
        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
        self.seen = dict.fromkeys(names, 0.0)  # the amaxes of this step so far, on this rank

    def scale(self, name: str) -> float:
        """What a tensor is divided by in this step."""
        raise NotImplementedError("delayed_scaling: scale")

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A tensor in FP8, and its scale; remembers its amax.

        Args:
            name: which tensor this is.
            x: floats of any shape, on every rank another part or batch.

        Returns:
            The FP8 numbers, torch.float8_e4m3fn of the same shape, and the scale.
        """
        raise NotImplementedError("delayed_scaling: quantize")

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories."""
        raise NotImplementedError("delayed_scaling: step")
