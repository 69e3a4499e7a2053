"""mutant: there is no micro-batch 3, 0 to 2"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(1, warm + 1)]
    for k in range(1, m - warm + 1):
        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm + 1, m + 1)]
