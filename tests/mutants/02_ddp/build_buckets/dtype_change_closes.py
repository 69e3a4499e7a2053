"""mutant: is not what it should be"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = dict.fromkeys(p for p in params if p.requires_grad)
    buckets, started = [], set()
    for parameter in reversed(trained):
        last = buckets[-1] if buckets else None
        limit = cap if parameter.dtype in started else first_cap
        same = last and last[0].dtype == parameter.dtype
        if not same or sum(p.nbytes for p in last) + parameter.nbytes > limit:
            if last:
                started.add(last[0].dtype)
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets
