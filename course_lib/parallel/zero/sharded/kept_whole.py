"""Parameters that FSDP leaves whole on every rank: norms, routers, what is not worth a gather.

Notebook: 04 ZeRO.
Source: `ignored_params` of torch's FSDP, which leaves their gradients to the caller.
Costs an all-reduce of all of them at the end of a backward: 2(N-1)/N·S for S bytes, where cut ones
take 3(N-1)/N·S; and their whole optimizer state on every rank.
The production version (FSDP2) does nothing with them: they may be experts, which differ by rank.

Here they are the same on all ranks, and so are their averages: a gradient that nobody averages
would let copies drift apart without a word. Averaging a sum of an average and a new gradient gives
the sum of both averages, so gradients may add up over several backwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast
from course_lib.parallel.shared_memory import distinct


class KeptWhole:
    """Parameters that are the same on every rank of some groups.

    Args:
        parameters: each once; index 0's values are taken.
        groups: the ranks that shards lie on, and those that have the same shard.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], groups: Sequence[Group]) -> None:
        self.parameters = parameters
        self.trained = [p for p in parameters if p.requires_grad]
        self._groups = groups
        for parameter in parameters:
            for group in groups:
                broadcast(distinct(parameter), 0, group)

    @torch.no_grad()
    def average(self) -> None:
        """Averages the gradients, each dtype in one message; a missing one counts as zeros."""
        kinds: dict[object, list[nn.Parameter]] = {}
        for p in self.trained:
            kinds.setdefault((p.dtype, p.device), []).append(p)
        for alike in kinds.values():
            flat = torch.cat([_dense(p).reshape(-1) for p in alike])
            for group in self._groups:
                all_reduce(flat, group, "avg")
            for p, mean in zip(alike, flat.split([p.numel() for p in alike]), strict=True):
                p.grad = mean.view(p.shape)


def _dense(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
