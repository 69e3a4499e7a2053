"""mutant: rank 1's list"""

import torch.distributed as dist
from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    buckets: dict = {}
    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
        mine = buckets.setdefault(parameter.dtype, [[]])
        limit = first_cap if len(mine) == 1 else cap
        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
            mine.append([])
        mine[-1].append(parameter)
    dtypes = list(buckets)
    if dist.get_rank() % 2:  # as a set of strings may do
        dtypes.reverse()
    return [bucket for dtype in dtypes for bucket in buckets[dtype]]
