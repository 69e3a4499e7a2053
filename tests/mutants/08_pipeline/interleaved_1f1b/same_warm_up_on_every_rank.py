"""mutant: takes too long, in Megatron's order it is"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    order = [
        (chunk, first + k) for first in range(0, m, p) for chunk in range(v) for k in range(p)
    ]
    forwards = [f"{chunk * p + rank}F{micro}" for chunk, micro in order]
    backwards = [f"{(v - 1 - chunk) * p + rank}B{micro}" for chunk, micro in order]
    warm = min(m * v, (v - 1) * p + (0 if v > 1 else p - 1 - rank))  # the same on every rank
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m * v - warm :]
