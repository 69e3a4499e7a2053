"""mutant: takes too long, after it, a forward and a backward in turn"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - rank)
    step = 1 if rank == p - 1 else 2  # backwards, and then as many forwards
    plan = [f"{rank}F{k}" for k in range(warm)]
    for first in range(0, m - warm, step):
        some = range(first, min(first + step, m - warm))
        plan += [f"{rank}B{k}" for k in some] + [f"{rank}F{warm + k}" for k in some]
    return plan + [f"{rank}B{k}" for k in range(m - warm, m)]
