"""variant: a forward as long as the rank may hold one more, else a backward"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    order = [
        (chunk, first + k) for first in range(0, m, p) for chunk in range(v) for k in range(p)
    ]
    limit = p - rank if v == 1 else (v - 1) * p + 2 * (p - rank) - 1
    plan: list[str] = []
    begun = ended = 0
    while ended < len(order):
        if begun < len(order) and begun - ended < limit:
            chunk, micro = order[begun]
            plan.append(f"{chunk * p + rank}F{micro}")
            begun += 1
        else:
            chunk, micro = order[ended]
            plan.append(f"{(v - 1 - chunk) * p + rank}B{micro}")
            ended += 1
    return plan
