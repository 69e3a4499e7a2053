"""Random numbers under tensor parallelism: equal where tensors are replicated, else different.

Notebook 06. Dropout draws its mask from the process's default generator. With tensor parallelism,
some tensors are replicated: all ranks hold the same values and must drop the same elements, or the
tensors would no longer be replicated. Others are sharded: each rank holds different columns or
heads. There the ranks must drop different elements, or the same mask would repeat in every shard.
One generator cannot do both. So each rank has two streams of random numbers, and a region of code
says which of them it uses:

    rng = RegionRng(seed, group)
    with rng.region("replicated"):
        x = dropout(x)
    with rng.region("sharded"):
        y_part = dropout(y_part)

Rules
- In "replicated" regions all ranks of the group draw the same numbers. In "sharded" regions every
  rank draws different numbers, and none of those of the replicated regions.
- Each kind has one stream, which continues where the last region of that kind ended. So regions
  never repeat numbers, and a stream does not depend on what is drawn in regions of the other kind
  or outside.
- A stream depends only on `seed`, on the kind of region and, if sharded, on `group.index`. It does
  not depend on the global rank or on the state of the default generator. So a training run can be
  repeated, and each replica of a model can have its own seed. Streams of different seeds have no
  numbers in common, whatever their kinds.
- Code outside the regions notices nothing: making a RegionRng, and entering and leaving regions,
  leave the default generator in the state that it had. That also holds if an exception ends the
  region. The stream then continues after the numbers drawn so far, and the exception goes on to the
  caller.
- Regions are not nested. Nothing is sent.

`torch.get_rng_state()` is the default generator's state, a tensor, and `torch.set_rng_state(state)`
restores it. `torch.Generator().manual_seed(n).get_state()` is the state of a stream with seed n,
modulo 2^32, and does not touch the default generator. (A GPU has its own generator, with the same
two functions in `torch.cuda`. Here everything runs on the CPU.)

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import Group


class RegionRng:
    """The two streams of random numbers of one rank.

    Args:
        seed: the same on all ranks of the group, from 0 to below 2^20.
        group: the ranks among which tensors are sharded.
    """

    def __init__(self, seed: int, group: Group) -> None:
        raise NotImplementedError("tp_rng: the states at which the two streams begin")

    @contextmanager
    def region(self, kind: str) -> Iterator[None]:
        """Inside, torch's default generator is the stream of this kind.

        Args:
            kind: `replicated` or `sharded`.
        """
        raise NotImplementedError("tp_rng: swap the default generator's state, and put it back")
