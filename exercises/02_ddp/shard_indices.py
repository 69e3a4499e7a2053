"""Which examples are mine? Each rank's share of a data set, without a word between the ranks.

Notebook 02. In data parallelism every rank has the whole model and its own part of the data. The
ranks do not talk about who takes what: each computes its share from the same few numbers.

Rules, for one epoch (one pass over the data):

- All examples are shuffled, and the shuffled order is cut into `world` shares. Together the shares
  hold every example, and no example is in two of them (but for the rest, below).
- `seed` and `epoch` together choose the order: all ranks have the same one, the next epoch another
  one, and the same numbers give the same order again. That holds for every seed, also for 0.
- All shares have the same length: a rank with one batch more than the others would wait for ever in
  its last all-reduce. If `world` does not divide n, then with `drop_last` each has n // world
  examples and the rest is left out; which ones, is another few in each epoch. Without it each has
  n / world, rounded up, and some examples are seen again: as few as possible, so that no example
  is seen two times more often than another, also if there are fewer examples than ranks.
- The global random state is left as it was: dropout draws its numbers from there.

Free: which shuffle, how the order is cut (slices, or every `world`-th), and which examples are
seen again.

Your answer may use nothing of `course_lib`; of torch everything but
`torch.utils.data.DistributedSampler`.
"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    """The examples that one rank sees in one epoch.

    Args:
        n: how many examples there are, at least 1; they are numbered from 0.
        rank: whose share, 0 to world - 1.
        world: how many ranks share the data.
        epoch: number of the pass over the data, from 0.
        seed: the run's seed, the same on every rank.
        drop_last: leave out the rest that does not divide, instead of repeating some examples.

    Returns:
        int64, one dimension: numbers of examples, in the order in which they are seen.
    """
    raise NotImplementedError("shard_indices: write your answer here")
