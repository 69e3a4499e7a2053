"""variant: one pass for each dtype, with a running total"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    seen, trained = set(), []
    for p in params:
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            trained.insert(0, p)
    buckets = []
    for dtype in dict.fromkeys(p.dtype for p in trained):
        room, first = -1, True
        for p in (p for p in trained if p.dtype == dtype):
            if first or p.nbytes > room:
                room = first_cap if first else cap
                buckets.append([])
                first = False
            buckets[-1].append(p)
            room -= p.nbytes
    return buckets
