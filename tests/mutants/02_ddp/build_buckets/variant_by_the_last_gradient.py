"""variant: sorted by when their last gradient is ready, as tuples"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = list(dict.fromkeys(p for p in params if p.requires_grad))[::-1]
    when = {p: n for n, p in enumerate(trained)}

    def cut(members, limit):
        held = count = 0
        while count < len(members) and (count == 0 or held + members[count].nbytes <= limit):
            held += members[count].nbytes
            count += 1
        return [tuple(members[:count])] + (cut(members[count:], cap) if members[count:] else [])

    by_dtype = {}
    for p in trained:
        by_dtype.setdefault(p.dtype, []).append(p)
    found = [bucket for members in by_dtype.values() for bucket in cut(members, first_cap)]
    return sorted(found, key=lambda bucket: when[bucket[-1]])
