"""Which examples are mine? Each rank's share of a data set, with no messages between the ranks.

Notebook 02. In data parallelism every rank has the whole model and its own part of the data. The
ranks do not talk about who takes what: each computes its share from the same few numbers.

Rules, for one epoch (one pass over the data):

- All examples are shuffled, and the shuffled order is cut into `world` shares. Together the shares
  hold every example, and no example is in two of them (for the exceptions, see below).
- `seed` and `epoch` together determine the order: it is the same on all ranks, shuffled anew for
  every epoch and every seed, and the same arguments always give the same order, also in another
  process. That holds for every seed, including 0.
- All shares have the same length: a rank with one batch more than the others would wait forever in
  its last all-reduce. If `world` does not divide n, then with `drop_last` each rank has n // world
  examples and the rest is left out, different examples in each epoch. Without `drop_last`, each
  rank has n / world examples, rounded up, and some examples are seen again. The counts of any two
  examples, over all ranks, differ by at most 1, even if there are fewer examples than ranks.
- The global random state (torch's, Python's, NumPy's) must not change: dropout draws from it.

You may choose how to shuffle, how to cut the order (slices, or every `world`-th example), and which
examples are seen again.

Your answer may use nothing of `course_lib`; of torch everything but
`torch.utils.data.DistributedSampler`.
"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    """Returns the examples that one rank sees in one epoch.

    Args:
        n: how many examples there are, at least 1; they are numbered from 0.
        rank: the rank whose share is wanted, 0 to world - 1.
        world: how many ranks share the data.
        epoch: number of the pass over the data, from 0.
        seed: the run's seed, the same on every rank.
        drop_last: leave out the remainder instead of repeating some examples.

    Returns:
        The numbers of the examples in the order in which they are seen; int64, one dimension.
    """
    raise NotImplementedError("shard_indices: write your answer here")
