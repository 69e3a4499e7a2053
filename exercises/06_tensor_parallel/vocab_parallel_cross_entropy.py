"""Cross-entropy of logits that are cut along the vocabulary: three small sums, no full logits.

Notebook 06. A model's logits are its largest activation: B·T·V numbers, for B sequences of T tokens
and a vocabulary of V. If the last matrix is cut along the vocabulary, each rank computes the logits
of its own V_r tokens, B·T·V_r numbers. To gather them would send B·T·V numbers and hold them on
every rank. But the loss of one token,

    loss = log(Σ exp(logit - peak)) - (logit[target] - peak)        the sum over all V logits

needs just three numbers that all ranks contribute to: the largest logit `peak`, the target's logit,
which lies on one rank, and the sum of the exponentials. So three all-reduces of B·T numbers do. And
its gradient, exp(logit - peak) / sum, less one at the target, needs nothing that a rank does not
have already: backward sends nothing.

Rules
- The loss of each token [B, T], unreduced, the same on every rank. Autograd then calls `backward`
  with the gradient of that, the same on every rank.
- The cut is that of `torch.tensor_split`: V need not divide by N, so slices may differ by one, but
  each has one logit or more. `first`, which `forward` is given, is the global number of the slice's
  first logit. Targets are global numbers: a rank looks up only those that lie in its slice, and
  contributes 0 for the others.
- `peak` is the largest logit of *all* ranks: logits of 10 000 on one and -10 000 on another must
  give a finite loss. (Any other number gives the same loss on paper, as long as it is the same on
  all ranks. No gradient flows through it.)
- It costs 3·2(N-1)/N·B·T numbers on the wire in forward, none in backward. No rank ever holds more
  than a few tensors of the size of its slice; keep one of them for the backward.
- `logits_part` and `targets` stay as they are.

`all_reduce` of `course_lib.comm` works in place, and knows `op="max"`. Autograd does not look into
a Function: what `forward` does there is invisible to it, and `backward` is all that it knows.

Your answer may use `comm` of `course_lib`.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class VocabParallelCrossEntropy(torch.autograd.Function):
    """The loss of each token, from the logits `first` to `first` + V_r - 1 of all V."""

    @staticmethod
    def forward(
        ctx: Any, logits_part: torch.Tensor, targets: torch.Tensor, first: int, group: Group
    ) -> torch.Tensor:
        """The loss [B, T]. What the backward needs goes into `ctx.save_for_backward(...)`."""
        raise NotImplementedError("vocab_parallel_cross_entropy: the loss of each token")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """From the gradient of the loss [B, T] to that of `logits_part` [B, T, V_r]."""
        raise NotImplementedError("vocab_parallel_cross_entropy: the gradient of logits_part; None for the other three arguments")


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    """The cross-entropy of each token.

    Args:
        logits_part: this rank's logits [B, T, V_r], part `group.index` of a `tensor_split` of all.
        targets: int64 [B, T], numbers from 0 to V - 1; the same on every rank.
        vocabulary: V, at least the group's size.
        group: the ranks that share the vocabulary.

    Returns:
        The loss [B, T], the same on every rank.
    """
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
