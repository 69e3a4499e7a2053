"""Random numbers under tensor parallelism: equal where tensors are replicated, else different.

Notebook 06. Dropout takes its mask from the process's default generator. With tensor parallelism
some tensors are replicated: all ranks hold the same, and must drop the same elements, or they are
replicated no more. Others are sharded: each rank holds other columns or heads. There all ranks must
drop different elements, or the same mask repeats in every shard. One generator cannot do both.
So there are two streams of random numbers on each rank, and a region of code says which it uses:

    rng = RegionRng(seed, group)
    with rng.region("replicated"):
        x = dropout(x)
    with rng.region("sharded"):
        y_part = dropout(y_part)

Rules
- In "replicated" regions the numbers are the same on all ranks of the group; in "sharded" ones no
  rank has those of another, nor those of the replicated regions.
- Each kind has a stream, which goes on where the last region of that kind ended: regions never
  repeat numbers, and what is drawn in the other kind or outside does not matter to it.
- A stream depends on nothing but `seed` and the kind of region and, if sharded, `group.index`.
  Not on the global rank, nor on what the default generator was at: so training can be repeated,
  and the replicas of a model can each be given a seed of their own.
- Whoever draws outside never notices: making a RegionRng and entering regions leave the default
  generator where it was. That holds too if an exception ends the region; the stream keeps what was
  drawn until then, and the exception goes on to the caller.
- Nothing is sent.

The default generator's state is `torch.get_rng_state()`, a tensor, and `torch.set_rng_state(state)`
brings it back. `torch.Generator().manual_seed(n).get_state()` is the state of a stream with seed n,
and does not touch the default one. (A GPU has a generator of its own, with the same pair of
functions in `torch.cuda`. Here everything runs on CPU.)

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.comm import Group


class RegionRng:
    """The two streams of random numbers of one rank.

    Args:
        seed: the same on all ranks of the group, at least 0.
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
