"""mutant: before, a W what its I has"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        if k >= rank:
            plan.append(f"{rank}W{k - rank}")
        plan.append(f"{rank}I{k}")
    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
