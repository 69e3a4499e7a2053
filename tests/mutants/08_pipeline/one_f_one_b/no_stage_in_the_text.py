"""mutant: which is no action, the letter is F"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    warm = min(m, p - 1 - rank)
    plan = [f"F{k}" for k in range(warm)]
    for k in range(m - warm):
        plan += [f"F{warm + k}", f"B{k}"]
    return plan + [f"B{k}" for k in range(m - warm, m)]
