"""mutant: takes too long, lets the ranks behind it wait"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, max(0, p - 2 - rank))
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
