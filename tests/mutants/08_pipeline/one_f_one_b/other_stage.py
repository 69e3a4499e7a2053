"""mutant: rank 0 runs 1F0, but it holds another stage"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"{p - 1 - rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{p - 1 - rank}F{warm + k}", f"{p - 1 - rank}B{k}"]
    return plan + [f"{p - 1 - rank}B{k}" for k in range(m - warm, m)]
