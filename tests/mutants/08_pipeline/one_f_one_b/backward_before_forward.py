"""mutant: before, a backward needs what its forward has kept"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
