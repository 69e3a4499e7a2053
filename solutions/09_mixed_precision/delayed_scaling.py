"""delayed_scaling: scale a tensor by its magnitudes in the last steps, equally on every rank.

Notebook 09. Before numbers become FP8 they are divided by a scale, so that the largest magnitude of
the tensor, its *amax*, becomes the largest number of the format: 448 for e4m3. To find the amax, a
kernel must read the whole tensor; then it must read the tensor again to write it in FP8. Delayed
scaling saves one of the two passes: tensors change slowly from step to step, so the scale comes
from the amaxes of the last steps, which are already known. While the kernel writes the FP8 numbers,
it also finds the amax of this step, for later steps. A tensor that has grown is clipped once.

Ranks that share a weight or sum their products must use the same scale, so they agree on the
amaxes.

Rules:

- A scale *multiplies*: number = FP8 number · scale. It is a float: the largest amax of the last
  `length` completed steps, divided by LARGEST. If no amax larger than 0 is known yet, it is 1.
- All calls of `quantize` for a tensor in one step (micro-batches) use the same scale. The tensor's
  amax in this step is the largest of all its calls on all ranks.
- `quantize` divides in float32, clips to ±LARGEST and casts to e4m3. It does not change `x`. `x`
  may be bf16, not contiguous, or empty: an expert without tokens.
- `step` ends the step on all ranks, with one all-reduce for all tensors, 4 bytes for each. A rank
  may not have used a tensor in this step, or no rank; then its amax there is 0, which counts like
  any other.
- If a tensor contained infinity or NaN on any rank, this step says nothing about its range, and its
  history does not change on any rank. `quantize` may return anything for such numbers. Keep in mind
  that comparisons with NaN are always false, in `max` as well.
- Nothing else is sent. You may use `course_lib.comm`.
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
        length: how many steps the history holds.
        group: the ranks that must use the same scales.
    """

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group = group
        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
        self.seen = dict.fromkeys(names, 0.0)  # the amaxes of this step so far, on this rank

    def scale(self, name: str) -> float:
        """Returns the number that a tensor is divided by in this step."""
        # BEGIN SOLUTION: scale
        return max(self.history[name], default=0.0) / LARGEST or 1.0
        # END SOLUTION

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Converts a tensor to FP8, and records its amax; sends nothing.

        Args:
            name: which tensor this is.
            x: floats of any shape; each rank has its own part or batch.

        Returns:
            The FP8 numbers, torch.float8_e4m3fn of the same shape, and the scale.
        """
        # BEGIN SOLUTION: quantize
        amax = float(x.abs().max()) if x.numel() else 0.0
        finite = amax < float("inf")  # false for NaN
        self.seen[name] = max(self.seen[name], amax if finite else float("inf"))
        scale = self.scale(name)
        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale
        # END SOLUTION

    def step(self) -> None:
        """Ends a step: adds the amaxes of all ranks to the histories; collective."""
        # BEGIN SOLUTION: step
        amaxes = torch.tensor([*self.seen.values()])
        all_reduce(amaxes, self.group, "max")
        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
            if amax < float("inf"):
                self.history[name].append(amax)
            self.seen[name] = 0.0
        # END SOLUTION
