"""mutant: what two replicated regions draw"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import Group


class RegionRng:
    def __init__(self, seed: int, group: Group) -> None:
        seeds = {"replicated": seed * (group.size + 1) + 7 * group.index}
        seeds["sharded"] = seeds["replicated"] + 1 + group.index
        self.states = {
            kind: torch.Generator().manual_seed(own).get_state() for kind, own in seeds.items()
        }

    @contextmanager
    def region(self, kind: str) -> Iterator[None]:
        outside = torch.get_rng_state()
        torch.set_rng_state(self.states[kind])
        try:
            yield
        finally:
            self.states[kind] = torch.get_rng_state()
            torch.set_rng_state(outside)
