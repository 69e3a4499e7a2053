"""variant: open buckets in a dict, closed ones in a list, in the order in which they close"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = list(dict.fromkeys(p for p in params if p.requires_grad))
    closed, open_ones, started = [], {}, set()
    for parameter in trained[::-1]:
        dtype = parameter.dtype
        mine = open_ones.setdefault(dtype, [])
        limit = cap if dtype in started else first_cap
        if mine and sum(p.nbytes for p in mine) + parameter.nbytes > limit:
            closed.append(mine)
            started.add(dtype)
            mine = open_ones[dtype] = []
        mine.append(parameter)
    return closed + list(open_ones.values())
