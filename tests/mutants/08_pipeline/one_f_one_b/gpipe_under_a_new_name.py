"""mutant: holds the activations of, this is GPipe"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    return [f"{rank}{kind}{k}" for kind in "FB" for k in range(m)]
