"""mutant: 3B0 before 3F0 on rank 1, a backward needs what its forward has kept"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    def chunk_and_micro(k: int) -> tuple[int, int]:
        turn, place = divmod(k, m * v)
        return place // m, place % m

    where = [chunk_and_micro(k) for k in range(m * v)]
    forwards = [f"{c * p + rank}F{k}" for c, k in where]
    backwards = [f"{(v - 1 - c) * p + rank}B{k}" for c, k in where]
    warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
    warm = min(warm, m * v)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m * v - warm :]
