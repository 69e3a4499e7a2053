"""mutant: takes too long, lets the ranks behind it wait"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - rank)  # enough, but the last two ranks share it
    warm = max(1, warm - 1)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}B{k}", f"{rank}F{warm + k}"]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
