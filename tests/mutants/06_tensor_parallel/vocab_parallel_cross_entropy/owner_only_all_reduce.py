"""mutant: deadlock, A rank that owns none of the targets"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_part: torch.Tensor, targets: torch.Tensor, first: int, group: Group
    ) -> torch.Tensor:
        peak = logits_part.amax(-1)
        all_reduce(peak, group, "max")
        shifted = logits_part - peak.unsqueeze(-1)
        local = targets - first
        mine = (local >= 0) & (local < logits_part.shape[-1])
        place = local.where(mine, 0).unsqueeze(-1)
        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
        if mine.any():
            all_reduce(target, group)
        exponentials = shifted.exp_()
        total = exponentials.sum(-1)
        all_reduce(total, group)
        softmax = exponentials.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, place, mine)
        return total.log() - target

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        softmax, place, mine = ctx.saved_tensors
        less_one = -mine.to(softmax.dtype).unsqueeze(-1)
        slope = softmax.scatter_add(-1, place, less_one)
        return slope * grad.unsqueeze(-1), None, None, None


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
