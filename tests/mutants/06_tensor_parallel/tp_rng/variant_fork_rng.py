"""variant: torch.random.fork_rng, and generators kept as objects"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import Group


class RegionRng:
    def __init__(self, seed: int, group: Group) -> None:
        self.streams = {"replicated": torch.Generator(), "sharded": torch.Generator()}
        self.streams["replicated"].manual_seed(seed)
        self.streams["sharded"].manual_seed(seed + 2718 + group.index)

    @contextmanager
    def region(self, kind: str) -> Iterator[None]:
        stream = self.streams[kind]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(stream.get_state())
            try:
                yield
            finally:
                stream.set_state(torch.get_rng_state())
