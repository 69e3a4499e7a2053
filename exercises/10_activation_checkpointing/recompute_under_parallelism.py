"""Recomputation on several ranks: recompute the same blocks, or recompute without communication.

Notebook 10. A tensor-parallel block contains collectives. Each rank computes its part of a product,
and an all-reduce sums the parts (g of notebook 06):

    def block(x, add):                    add(part): the sum of all ranks' parts
        x = x + add(attention(x))         one all-reduce in forward
        return x + add(network(x))        another one

A block that is recomputed repeats everything, including its all-reduces. This has two
disadvantages. If ranks recompute different blocks, because one has less memory than another,
all-reduces of different blocks are matched: sums are wrong, and in the end a rank waits forever.
And each sum is sent twice.

So there are two ways, and you write both.

`agreed_count`: all ranks recompute the same blocks, the first `count` of them, where `count` is the
largest number that any rank needs. (Megatron-LM's `--recompute-method block` also recomputes the
first blocks.)
- If the first k of n blocks are recomputed, this rank holds k·kept + whole[k] + ... + whole[n-1].
  `kept` is never more than `whole[i]`. A rank needs the smallest k with which it holds at most its
  budget. Budgets and `whole` differ from rank to rank; n is the same.
- The ranks agree with one all-reduce of a single int64, 8 bytes, and the result is the same on all.
- If a rank's budget is too small even for k = n, then *all* ranks raise MemoryError. A rank that
  raises before the all-reduce leaves the others waiting.

`recomputed`: the block keeps its sums. Each takes as few bytes as a block's input, and is expensive
to compute again because every rank must take part. The second run takes the sums that the first has
kept, and sends nothing. So each rank may recompute whichever blocks it likes. (Korthikanti et al.,
2022, keep them as well: they recompute attention, which lies between the collectives.)
- PyTorch's `checkpoint(fn, *args, use_reentrant=False)` is given. It returns `fn(*args)`, but holds
  only the inputs, and calls `fn(*args)` a second time in backward. There is one backward.
- `block` calls `add` any number of times, with tensors of any shapes, which `add` must not change.
  A sum has its part's dtype, and is sent in it. In the second run, the n-th call returns what the
  n-th call of the first run returned.
- `add` is differentiable. As in g, the gradient of a part is the gradient of the sum, which every
  rank already has: backward sends nothing. This holds in both runs.
- Many calls, also of the same block, may be waiting for their backward at the same time. Each keeps
  its own sums, and holds none of them after its backward, or once its output is dropped. Keep a sum
  with `detach`: the graph of the tensor that `Sum` returns leads back to whatever keeps it. A block
  never writes into a sum.

Your answer may use `comm` and `recompute.Recompute` of `course_lib`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from course_lib.comm import Group, all_reduce

Add = Callable[[torch.Tensor], torch.Tensor]


def agreed_count(kept: int, whole: Sequence[int], budget: int, group: Group) -> int:
    """Returns how many blocks, counted from the first, all ranks recompute; collective.

    Args:
        kept: bytes that a recomputed block holds on this rank.
        whole: for each block, the bytes that it holds on this rank if it is not recomputed.
        budget: bytes that this rank has for its blocks.
        group: the ranks that must agree.

    Returns:
        The smallest count that is enough for every rank, from 0 to the number of blocks.

    Raises:
        MemoryError: on every rank, if for any of them it is not enough to recompute all blocks.
    """
    raise NotImplementedError("recompute_under_parallelism: the same count on all ranks")


class Sum(torch.autograd.Function):
    """g of notebook 06, which communicates only in the first run."""

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, sums: deque[torch.Tensor], first: bool, group: Group
    ) -> torch.Tensor:
        """Returns the sum of all ranks' parts.

        Args:
            ctx: not needed.
            part: this rank's part, which is not changed.
            sums: those that the first run has kept and the second has not yet used.
            first: whether this is the first run.
            group: the ranks.
        """
        raise NotImplementedError("recompute_under_parallelism: the sum, sent once")

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """One gradient for `part`, None for the others."""
        raise NotImplementedError("recompute_under_parallelism: the gradient of a part")


def recomputed(
    block: Callable[[torch.Tensor, Add], torch.Tensor], x: torch.Tensor, group: Group
) -> torch.Tensor:
    """Returns `block(x, add)`, and holds only `x` and the sums until backward.

    Args:
        block: calls `add(part)` wherever it needs the sum of all ranks' parts.
        x: its input.
        group: the ranks over which `add` sums.
    """
    raise NotImplementedError("recompute_under_parallelism: two runs, one of which adds up")
