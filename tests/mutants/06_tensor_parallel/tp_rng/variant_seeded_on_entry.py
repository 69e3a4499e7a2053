"""variant: a class with __enter__; the default generator is seeded and put back"""

from contextlib import AbstractContextManager
from typing import Any

import torch

from course_lib.comm import Group


class Region(AbstractContextManager):
    def __init__(self, rng: "RegionRng", kind: str) -> None:
        self.rng, self.kind = rng, kind

    def __enter__(self) -> None:
        self.outside = torch.get_rng_state()
        if self.kind in self.rng.states:
            torch.set_rng_state(self.rng.states[self.kind])
        else:
            torch.manual_seed(self.rng.seeds[self.kind])

    def __exit__(self, *error: Any) -> None:
        self.rng.states[self.kind] = torch.get_rng_state()
        torch.set_rng_state(self.outside)


class RegionRng:
    def __init__(self, seed: int, group: Group) -> None:
        self.seeds = {"replicated": 2 * seed, "sharded": (2 * seed + 1) << (8 * group.index)}
        self.states: dict[str, torch.Tensor] = {}

    def region(self, kind: str) -> Region:
        return Region(self, kind)
