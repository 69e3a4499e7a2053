"""variant: histories are one tensor, overflows are found by a sum with infinity"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce

LARGEST = 448.0


class DelayedScaling:
    """Scales for tensors that are quantized in every step."""

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group, self.names = group, list(names)
        self.past = torch.zeros(len(self.names), length)
        self.seen = torch.zeros(len(self.names))

    def scale(self, name: str) -> float:
        """What a tensor is divided by in this step."""
        row = self.past[self.names.index(name)]
        return float(row.max()) / LARGEST or 1.0

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A tensor in FP8, and its scale; remembers its amax."""
        wide, row = x.to(torch.float32), self.names.index(name)
        if wide.numel():
            amax = torch.where(wide.isfinite(), wide.abs(), torch.inf).amax()
            self.seen[row] = torch.maximum(self.seen[row], amax)
        scale = self.scale(name)
        return (wide * (1 / scale)).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories."""
        all_reduce(self.seen, self.group, "max")
        rolled = torch.cat([self.past[:, 1:], self.seen[:, None]], 1)
        self.past = torch.where(self.seen.isfinite()[:, None], rolled, self.past)
        self.seen = torch.zeros(len(self.names))
