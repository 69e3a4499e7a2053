"""mutant: a deadlock: rank 0's 0B0 waits for 1B0 of rank 1; rank 1's 1F1 waits for 0F1 of rank 0"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, rank)  # the last rank the most
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
