"""mutant: p = 2, but there is no micro-batch 1, the same with fewer micro-batches"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = p - rank  # with the first pair's forward
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
