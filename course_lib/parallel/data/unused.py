"""Which parameters did any rank use? What no rank used must be left alone, as in one process.

Notebook: 02 Data parallel, 04 ZeRO.
Source: find_unused_parameters of torch's DistributedDataParallel.
Costs one all-reduce of a byte for each parameter.
The production version sends the same map, and finds out what is unused from the autograd graph.

A parameter without a gradient is skipped by an optimizer: no weight decay, no momentum. A rank
without a gradient cannot know whether another rank has one, and so whether to take part with zeros
or to skip the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def agree_used(used: Sequence[bool], group: Group) -> list[bool]:
    """Whether at least one rank has a gradient, for each parameter.

    Args:
        used: for each parameter, whether this rank has one; the same order on every rank.
        group: the ranks that share the parameters.

    Returns:
        The same list on every rank. 2(N-1)/N bytes are sent for each parameter.
    """
    flags = torch.tensor(used, dtype=torch.uint8, device=group.device)
    all_reduce(flags, group, "max")
    return flags.bool().tolist()
