"""mutant: must be a pair"""

from collections.abc import Sequence


def sqrt_n_plan(n: int, memory: int = 1) -> list[range]:
    counts = range(1, n + 1)
    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]


def best_segments(
    times: Sequence[int], memories: Sequence[int], budget: int
) -> list[tuple[range, bool]]:
    n = len(times)
    best: list[dict[int, tuple[int, list[tuple[range, bool]]]]] = [{0: (0, [])}]  # by what is held
    for end in range(1, n + 1):
        found: dict[int, tuple[int, list[tuple[range, bool]]]] = {}
        for start, again in [*((start, True) for start in range(end)), (end - 1, False)]:
            inside = sum(memories[start:end])
            holds, more = (1, inside) if again else (inside, 0)
            time = again * sum(times[start:end])
            for held, (before, plan) in best[start].items():
                now, cost = held + holds, before + time
                if now + more <= budget and (now not in found or cost < found[now][0]):
                    found[now] = cost, [*plan, (range(start, end), again)]
        best.append(found)
    if not best[n]:
        raise ValueError(f"no plan of {n} blocks is within {budget}")
    return [blocks for blocks, _ in min(best[n].values(), key=lambda option: option[0])[1]]
