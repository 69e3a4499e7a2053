"""Random numbers that ranks must share, and random numbers in which they must differ.

Notebook: 06 Tensor parallel (tp_rng).
Source: Megatron-LM's random-number tracker (Shoeybi et al., 2019, appendix B.2).
Costs nothing: seeds are computed, not sent; a generator's state is a few kilobytes.
The production version keeps such a state on each GPU, and hands it to recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import CommError, Group

REGIONS = ("replicated", "sharded")
OUTSIDE = "outside"  # of any region: the default stream


class RegionRng:
    """Two streams of random numbers beside the default one.

    Dropout on a replicated tensor must drop the same elements on every rank of the group, or its
    copies are no longer equal; on a sharded one each rank has different elements, and dropping them
    by the same pattern would make the parts depend on each other.

    Args:
        seed: agreed on by all ranks.
        group: the tensor-parallel ranks.
    """

    def __init__(self, seed: int, group: Group) -> None:
        self._generators = {"": torch.default_generator}
        if group.device.type == "cuda":  # numbers drawn there; some may still be drawn on the CPU
            self._generators[" on the GPU"] = torch.cuda.default_generators[group.device.index]
        # Far apart, so that the next seed's replicated stream is not this one's sharded stream.
        seeds = {"replicated": seed, "sharded": seed + 2718 * (group.index + 1)}
        self._states = {
            name + where: torch.Generator(generator.device).manual_seed(number).get_state()
            for name, number in seeds.items()
            for where, generator in self._generators.items()
        }
        self._now = OUTSIDE

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Draws from one of the streams inside; the default stream is not advanced.

        Inside another region, draws of that one go on where they were afterwards.

        Args:
            name: `replicated` or `sharded`.

        Raises:
            CommError: there is no such region.
        """
        if name not in REGIONS:
            raise CommError(
                f"random numbers of the region {name!r}",
                f"the regions {' and '.join(REGIONS)}",
                "a tensor is the same on all ranks of the group, or cut over them",
            )
        before = self._now
        self._switch(name)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, name: str) -> None:
        """Puts away the stream that is drawn from now, and goes on with another."""
        for where, generator in self._generators.items():
            self._states[self._now + where] = generator.get_state()
            generator.set_state(self._states[name + where])
        self._now = name

    def get_state(self) -> dict[str, torch.Tensor]:
        """Both streams' states: for a checkpoint, and for recomputation."""
        self._switch(self._now)  # inside a region its stream has gone on
        return {name: s for name, s in self._states.items() if name.startswith(REGIONS)}

    def set_state(self, states: dict[str, torch.Tensor]) -> None:
        """Goes on from where `get_state` was called."""
        self._states |= states
