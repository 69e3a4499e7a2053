"""mutant: x was changed"""

from collections import deque
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce

LARGEST = 448.0


class DelayedScaling:
    """Scales for tensors that are quantized in every step."""

    def __init__(self, names: Sequence[str], length: int, group: Group) -> None:
        self.group = group
        self.history: dict[str, deque[float]] = {name: deque(maxlen=length) for name in names}
        self.seen = dict.fromkeys(names, 0.0)

    def scale(self, name: str) -> float:
        """What a tensor is divided by in this step."""
        return max(self.history[name], default=0.0) / LARGEST or 1.0

    @torch.no_grad()
    def quantize(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A tensor in FP8, and its scale; remembers its amax."""
        amax = float(x.abs().max()) if x.numel() else 0.0
        self.seen[name] = max(self.seen[name], amax if amax < float("inf") else float("inf"))
        scale = self.scale(name)
        return x.div_(scale).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories."""
        amaxes = torch.tensor([*self.seen.values()])
        all_reduce(amaxes, self.group, "max")
        for name, amax in zip(self.history, amaxes.tolist(), strict=True):
            if amax < float("inf"):
                self.history[name].append(amax)
            self.seen[name] = 0.0
