"""mutant: there is no B here, F"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        plan.append(f"{rank}B{k}")
    return plan
