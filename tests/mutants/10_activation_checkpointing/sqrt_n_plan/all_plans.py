"""mutant: far too slow"""

from collections.abc import Sequence


def sqrt_n_plan(n: int, memory: int = 1) -> list[range]:
    counts = range(1, n + 1)
    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]


def best_segments(
    times: Sequence[int], memories: Sequence[int], budget: int
) -> list[tuple[range, bool]]:
    n = len(times)

    def longer(start, held, time, plan):
        if start == n:
            yield time, plan
            return
        if held + memories[start] <= budget:
            kept = [*plan, (range(start, start + 1), False)]
            yield from longer(start + 1, held + memories[start], time, kept)
        for end in range(start + 1, n + 1):
            if held + 1 + sum(memories[start:end]) <= budget:
                cost = time + sum(times[start:end])
                yield from longer(end, held + 1, cost, [*plan, (range(start, end), True)])

    best = min(longer(0, 0, 0, []), key=lambda option: option[0], default=None)
    if best is None:
        raise ValueError("no plan")
    return best[1]
