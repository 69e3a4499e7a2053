"""mutant: holds the activations of, rank 0 runs its first W after, later"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    lag = m
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        plan.append(f"{rank}I{k}")
        if k >= lag:
            plan.append(f"{rank}W{k - lag}")
    return plan + [f"{rank}W{k}" for k in range(max(m - lag, 0), m)]
