"""mutant: a deadlock, waits for"""


def interleaved_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    def chunk_and_micro(k: int) -> tuple[int, int]:
        turn, place = divmod(k, p * v)
        return place // p, turn * p + place % p

    where = [chunk_and_micro(k) for k in range(m * v)]
    forwards = [f"{c * p + rank}F{k}" for c, k in where]
    backwards = [f"{c * p + rank}B{k}" for c, k in where]
    warm = p - 1 - rank if v == 1 else 2 * (p - 1 - rank) + (v - 1) * p
    warm = min(warm, m * v)
    pairs = [word for pair in zip(forwards[warm:], backwards, strict=False) for word in pair]
    return forwards[:warm] + pairs + backwards[m * v - warm :]
