"""mutant: something else than the parameters"""

from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = dict.fromkeys(p for p in params if p.requires_grad)
    buckets: dict = {}
    for parameter in reversed(trained):
        mine = buckets.setdefault(parameter.dtype, [[]])
        for piece in parameter.flatten().split(max(1, cap // parameter.element_size())):
            limit = first_cap if len(mine) == 1 else cap
            if mine[-1] and sum(p.nbytes for p in mine[-1]) + piece.nbytes > limit:
                mine.append([])
            mine[-1].append(parameter if piece.numel() == parameter.numel() else piece)
    return [bucket for mine in buckets.values() for bucket in mine]
