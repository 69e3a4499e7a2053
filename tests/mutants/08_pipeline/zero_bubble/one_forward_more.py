"""mutant: holds the activations of 3 micro-batches at once, 1F1B runs 2"""


def zero_bubble(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m):
        if warm + k < m:
            plan.append(f"{rank}F{warm + k}")
        plan.append(f"{rank}I{k}")
        if k >= rank:
            plan.append(f"{rank}W{k - rank}")
    return plan + [f"{rank}W{k}" for k in range(max(m - rank, 0), m)]
