"""Gradients and statistics under expert parallelism: who averages what over whom.

Notebook: 12 Expert parallel (expert_grad_sync).
Paper: Rajbhandari et al., "DeepSpeed-MoE" (2022), section 4.1; Singh et al., "A Hybrid
Tensor-Expert-Data Parallelism Approach to Optimize Mixture-of-Experts Training" (2023).
Costs 2(R-1)/R·S bytes a rank, S the bytes of its experts and R the ranks that hold the same ones;
the statistics 2(N-1)/N·E integers a layer and forward, over the N ranks that have tokens.
The production version overlaps the gradients with backward, and sends counts with other messages.

On R·N ranks that all have tokens of their own, N of them sharing the experts:

    parameter       held by               a backward leaves             averaged over
    an expert's     R ranks               the mean over the N senders   those R ranks
    any other       all R·N ranks         this rank's                   all R·N ranks

The first is averaged here, the second as well, or by any wrapper for data parallelism that skips
experts.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.comm.autograd import summed
from course_lib.parallel.data.bucket import build_buckets


def average_over_replicas(
    parameters: Iterable[nn.Parameter], replicas: Group, cap: int = 25 << 20
) -> None:
    """Averages gradients over the ranks that hold the same parameters; call it after backward.

    Without a gradient a parameter takes part with zeros. With one replica nothing is sent.

    Args:
        parameters: experts of this rank, whose gradients are the mean over the ranks that sent
            tokens, as `ExpertParallel.keep_own` has them; or any others.
        replicas: the ranks that hold the same ones.
        cap: bytes of a message.
    """
    if replicas.size == 1:
        return
    for bucket in build_buckets(list(parameters), cap, cap):
        for parameter in bucket.parameters:
            bucket.adopt(parameter, replicas.size)
        all_reduce(bucket.flat, replicas)


class TotalCounts:
    """Counts of all ranks' tokens, so that auxiliary losses are those of the whole batch.

    Args:
        group: all ranks that have tokens of their own, those with other experts included.
    """

    def __init__(self, group: Group) -> None:
        self.group = group

    def __call__(self, counts_E: torch.Tensor) -> tuple[torch.Tensor, int]:
        """The sum over the group, and how many ranks it has: 2(N-1)/N·E·8 bytes sent."""
        return summed(counts_E, self.group), self.group.size
