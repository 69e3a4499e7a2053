"""variant: two counters: a forward as long as the limit allows it, else a backward"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    plan: list[str] = []
    begun = ended = 0
    while ended < m:
        if begun < m and begun - ended < p - rank:
            plan.append(f"{rank}F{begun}")
            begun += 1
        else:
            plan.append(f"{rank}B{ended}")
            ended += 1
    return plan
