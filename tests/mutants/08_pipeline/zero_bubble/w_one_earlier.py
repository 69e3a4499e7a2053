"""mutant: takes too long, earlier than need be"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    lag = max(0, rank - 1)
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        plan.append(f"{rank}I{k}")
        if k >= lag:
            plan.append(f"{rank}W{k - lag}")
    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
