"""mutant: takes too long, rank 0 runs 1 forwards before its first backward"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    return [f"{rank}{kind}{k}" for k in range(m) for kind in "FB"]
