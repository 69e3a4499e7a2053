"""Cross-entropy of logits that are cut along the vocabulary: three small sums, no full logits.

Notebook 06. A model's logits are its largest activation: B·T·V numbers, for B sequences of T tokens
and a vocabulary of V. If the last matrix is cut along the vocabulary, each rank computes the logits
of its own V_r vocabulary entries, B·T·V_r numbers. Gathering them would put all B·T·V numbers on
every rank. But the loss of one token,

    loss = log(Σ exp(logit - peak)) - (logit[target] - peak)        the sum over all V logits

needs only three numbers that are spread over the ranks: the largest logit `peak`, the target's
logit, which lies on one rank, and the sum of the exponentials. So three all-reduces of B·T numbers
are enough. The gradient is exp(logit - peak) / sum, minus one at the target. A rank already has all
that it needs for that: backward sends nothing.

Rules
- Return the loss of each token [B, T], unreduced, the same on every rank. Autograd then calls
  `backward` with the gradient of this loss, which is the same on every rank as well.
- The logits are cut as `torch.tensor_split` cuts: N need not divide V, so slices may differ by one
  in size, but each has at least one logit. The argument `first` of `forward` is the global number
  of the slice's first logit. Targets are global numbers: a rank looks up only those that lie in its
  slice, and contributes 0 for the others.
- `peak` is the largest logit of *all* ranks: logits of 10 000 on one rank and -10 000 on another
  must give a finite loss. (Mathematically, any other number gives the same loss, as long as it is
  the same on all ranks. No gradient flows through it.)
- Each rank sends 3·2(N-1)/N·B·T numbers in forward, and none in backward. No rank ever holds more
  than a few tensors of the size of its slice; keep one of them for the backward.
- `logits_part` and `targets` must not be changed. Loss, messages and gradient have the dtype of the
  logits.

`all_reduce` of `course_lib.comm` works in place, and also takes `op="max"`. Autograd does not look
into a Function: what `forward` does is invisible to it, and it only calls your `backward`.
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
        """Returns the loss [B, T]; save what backward needs with `ctx.save_for_backward(...)`."""
        # BEGIN SOLUTION: the loss of each token
        peak = logits_part.amax(-1)
        all_reduce(peak, group, "max")
        shifted = logits_part - peak.unsqueeze(-1)  # mutate: same
        local = targets - first
        mine = (local >= 0) & (local < logits_part.shape[-1])
        place = local.where(mine, 0).unsqueeze(-1)
        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
        all_reduce(target, group)  # mutate: same
        exponentials = shifted.exp_()
        total = exponentials.sum(-1)
        all_reduce(total, group)
        softmax = exponentials.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, place, mine)
        return total.log() - target
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """From the gradient of the loss [B, T] to that of `logits_part` [B, T, V_r]."""
        # BEGIN SOLUTION: the gradient of logits_part; None for the other three arguments
        softmax, place, mine = ctx.saved_tensors
        less_one = -mine.to(softmax.dtype).unsqueeze(-1)
        slope = softmax.scatter_add(-1, place, less_one)
        return slope * grad.unsqueeze(-1), None, None, None
        # END SOLUTION


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    """Computes the cross-entropy of each token.

    Args:
        logits_part: this rank's logits [B, T, V_r], part `group.index` of a `tensor_split` of all
            logits along the last dim.
        targets: int64 [B, T], numbers from 0 to V - 1; the same on every rank.
        vocabulary: V, at least the group's size.
        group: the ranks that share the vocabulary.

    Returns:
        The loss [B, T], the same on every rank.
    """
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
