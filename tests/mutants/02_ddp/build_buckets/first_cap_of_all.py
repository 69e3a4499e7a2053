"""mutant: not of the whole list"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = dict.fromkeys(p for p in params if p.requires_grad)
    buckets: dict = {}
    for parameter in reversed(trained):
        mine = buckets.setdefault(parameter.dtype, [[]])
        limit = first_cap if len(mine) == 1 and len(buckets) == 1 else cap
        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
            mine.append([])
        mine[-1].append(parameter)
    return [bucket for mine in buckets.values() for bucket in mine]
