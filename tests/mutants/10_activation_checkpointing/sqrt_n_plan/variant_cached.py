"""variant: from the first block on, with a cache; segments of one size and a shorter last one"""

from functools import cache


def sqrt_n_plan(n, memory=1):
    plans = [
        [range(start, min(start + size, n)) for start in range(0, n, size)]
        for size in range(1, n + 1)
    ]
    return min(plans, key=lambda plan: len(plan) + memory * len(plan[0]), default=[])


def best_segments(times, memories, budget):
    n = len(times)

    @cache
    def rest(start, held):
        if start == n:
            return 0, ()
        options = []
        if held + memories[start] <= budget:
            options.append((start + 1, held + memories[start], 0, False))
        for end in range(start + 1, n + 1):
            if held + 1 + sum(memories[start:end]) > budget:
                break
            options.append((end, held + 1, sum(times[start:end]), True))
        found = []
        for end, now, cost, again in options:
            after = rest(end, now)
            if after is not None:
                found.append((cost + after[0], ((range(start, end), again), *after[1])))
        return min(found, key=lambda option: option[0], default=None)

    plan = rest(0, 0)
    if plan is None:
        raise ValueError("it does not fit")
    return list(plan[1])
