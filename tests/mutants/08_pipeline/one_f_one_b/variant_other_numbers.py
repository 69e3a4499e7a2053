"""variant: the micro-batches go through in reverse order"""


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    forwards = [f"{rank}F{k}" for k in reversed(range(m))]
    backwards = [f"{rank}B{k}" for k in reversed(range(m))]
    warm = min(m, p - 1 - rank)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m - warm :]
