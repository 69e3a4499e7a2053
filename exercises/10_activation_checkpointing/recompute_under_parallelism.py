"""Recomputation on several ranks: all ranks recompute alike, or nothing that needs the others.

Notebook 10. A tensor-parallel block contains collectives. Each rank computes its part of a product,
and an all-reduce adds up the parts (g of notebook 06):

    def block(x, add):                    add(part): the sum of all ranks' parts
        x = x + add(attention(x))         one all-reduce in forward
        return x + add(network(x))        another one

A block that is recomputed does again what it did, its all-reduces as well. That has two faults. If
ranks recompute different blocks, since one has less memory than another, one all-reduce meets an
unlike one: sums are wrong, and in the end a rank waits for ever. And each sum is sent twice.

So there are two ways, and both are yours.

`agreed_count`: all ranks recompute the same blocks, namely the first `count`, as many as the rank
needs that has the least memory. (Megatron-LM's `--recompute-method block` counts them so, too.)
- If the first k of n blocks are recomputed, this rank holds k·kept + whole[k] + ... + whole[n-1].
  `kept` is never more than `whole[i]`. A rank needs the least k with which it holds at most its
  budget. Budgets and `whole` differ from rank to rank; n is the same.
- What all need costs one all-reduce of a single int64, 8 bytes, and the result is the same on all.
- If a rank's budget is too small even for k = n, then *all* ranks raise MemoryError. A rank that
  raises before it has asked the others leaves them waiting for it.

`recomputed`: the block keeps its sums. They are few bytes, a block's input each, and dear, as they
need every rank. The second run takes them from what the first has kept, and sends nothing. So each
rank may recompute what it likes. (Korthikanti et al., 2022, keep them likewise: what is recomputed
there, attention, lies between the collectives.)
- PyTorch's `checkpoint(fn, *args, use_reentrant=False)` is given. It is `fn(*args)`, but holds the
  inputs alone, and calls `fn(*args)` a second time in backward. There is one backward.
- `add` is called any number of times, with tensors of one shape or several, none of which may
  change. In the second run its n-th call gives what it gave at the n-th call of the first run.
- `add` is differentiable. As in g, the gradient of a part is the gradient of the sum, on every rank
  already: backward sends nothing. That is so in both runs.
- Many calls, also of one block, are under way at a time. What is kept belongs to one of them, and
  nothing of it is held after the backward, or if the output is dropped. Keep a sum with `detach`:
  the tensor that `Sum` returns leads, over its graph, back to what keeps it. A block does not
  write into a sum.

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
    """How many blocks, from the first on, all ranks recompute.

    Args:
        kept: bytes that a recomputed block holds on this rank.
        whole: for each block the bytes that it holds if it is not recomputed, on this rank.
        budget: bytes that this rank has for its blocks.
        group: the ranks that must agree.

    Returns:
        The least count that is enough for every rank, 0 to the number of blocks.

    Raises:
        MemoryError: on every rank, if it is not enough for one of them to recompute all.
    """
    raise NotImplementedError("recompute_under_parallelism: the same count on all ranks")


class Sum(torch.autograd.Function):
    """g of notebook 06, which asks the other ranks in the first run only."""

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, sums: deque[torch.Tensor], first: bool, group: Group
    ) -> torch.Tensor:
        """The sum of all ranks' parts.

        Args:
            ctx: not needed.
            part: this rank's; stays as it is.
            sums: those kept by the first run and not used yet by the second.
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
    """`block(x, add)`, of which `x` and the sums are held until backward.

    Args:
        block: calls `add(part)` wherever it needs the sum of all ranks' parts.
        x: its input.
        group: the ranks over which `add` sums.
    """
    raise NotImplementedError("recompute_under_parallelism: two runs, one of which adds up")
