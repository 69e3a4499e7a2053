"""mutant: returns no list of texts"""


def one_f_one_b(rank: int, p: int, m: int) -> str:
    warm = min(m, p - 1 - rank)
    plan = [f"{rank}F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"{rank}F{warm + k}", f"{rank}B{k}"]
    return " ".join(plan + [f"{rank}B{k}" for k in range(m - warm, m)])
