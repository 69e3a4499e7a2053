"""Wrong and right answers to `sqrt_n_plan`: see `course dev show sqrt_n_plan`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("nearest_root", ["the peak of sqrt_n_plan(36, 17)"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    length = max(1, round((n / memory) ** 0.5))
+    count = -(-n // length)
'''),
    Wrong("all_plans", ["far too slow"], '''
-    best: list[dict[int, tuple[int, list[tuple[range, bool]]]]] = [{0: (0, [])}]  # by what is held
-    for end in range(1, n + 1):
-        found: dict[int, tuple[int, list[tuple[range, bool]]]] = {}
-        for start, again in [*((start, True) for start in range(end)), (end - 1, False)]:
-            inside = sum(memories[start:end])
-            holds, more = (1, inside) if again else (inside, 0)
-            time = again * sum(times[start:end])
-            for held, (before, plan) in best[start].items():
-                now, cost = held + holds, before + time
-                if now + more <= budget and (now not in found or cost < found[now][0]):
-                    found[now] = cost, [*plan, (range(start, end), again)]
-        best.append(found)
-    if not best[n]:
-        raise ValueError(f"no plan of {n} blocks is within {budget}")
-    return min(best[n].values(), key=lambda option: option[0])[1]
+    def longer(start, held, time, plan):
+        if start == n:
+            yield time, plan
+            return
+        if held + memories[start] <= budget:
+            kept = [*plan, (range(start, start + 1), False)]
+            yield from longer(start + 1, held + memories[start], time, kept)
+        for end in range(start + 1, n + 1):
+            if held + 1 + sum(memories[start:end]) <= budget:
+                cost = time + sum(times[start:end])
+                yield from longer(end, held + 1, cost, [*plan, (range(start, end), True)])
+
+    best = min(longer(0, 0, 0, []), key=lambda option: option[0], default=None)
+    if best is None:
+        raise ValueError("no plan")
+    return best[1]
'''),
    Wrong("all_recomputed", ["a cheaper plan"], '''
-        for start, again in [*((start, True) for start in range(end)), (end - 1, False)]:
+        for start, again in [*((start, True) for start in range(end))]:
'''),
    Wrong("below_the_budget", ["equal to the budget"], '''
-                if now + more <= budget and (now not in found or cost < found[now][0]):
+                if now + more < budget and (now not in found or cost < found[now][0]):
'''),
    Wrong("blocks_counted", ["a cheaper plan"], '''
-            time = again * sum(times[start:end])
+            time = again * (end - start)
'''),
    Wrong("empty_segment", ["a segment is empty"], '''
-    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]
+    size = -(-n // max(count, 1))
+    return [range(size * i, min(size * (i + 1), n)) for i in range(count)] + [range(n, n)]
'''),
    Wrong("held_at_the_end_only", ["peak at segment"], '''
-                if now + more <= budget and (now not in found or cost < found[now][0]):
+                if (now + more if end == n else now) <= budget and (now not in found or cost < found[now][0]):
'''),
    Wrong("inputs_are_free", ["peak at segment"], '''
-            holds, more = (1, inside) if again else (inside, 0)
+            holds, more = (0, inside) if again else (inside, 0)
'''),
    Wrong("last_one_wins", ["a cheaper plan"], '''
-                if now + more <= budget and (now not in found or cost < found[now][0]):
+                if now + more <= budget and True:
'''),
    Wrong("least_held", ["a cheaper plan"], '''
-        best.append(found)
+        least = min(found, default=None)
+        best.append({} if least is None else {least: found[least]})
'''),
    Wrong("memory_ignored", ["activations count `memory` times"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    count = min(counts, key=lambda k: k + -(-n // k), default=0)
'''),
    Wrong("no_error", ["there is no plan"], '''
-        raise ValueError(f"no plan of {n} blocks is within {budget}")
+        return [(range(n), True)]
'''),
    Wrong("one_plan_each", ["not the cheapest"], '''
-        best.append(found)
+        least = min(found, key=lambda held: found[held][0], default=None)
+        best.append({} if least is None else {least: found[least]})
'''),
    Wrong("one_segment", ["peak of sqrt_n_plan"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    count = min(n, 1)
'''),
    Wrong("own_activations_forgotten", ["needs its input and all its activations"], '''
-            holds, more = (1, inside) if again else (inside, 0)
+            holds, more = (1, 0) if again else (inside, 0)
'''),
    Wrong("pairs_of_ends", ["list of ranges"], '''
-    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]
+    return [(n * i // count, n * (i + 1) // count) for i in range(count)]
'''),
    Wrong("ranges_alone", ["must be a pair"], '''
-    return min(best[n].values(), key=lambda option: option[0])[1]
+    return [blocks for blocks, _ in min(best[n].values(), key=lambda option: option[0])[1]]
'''),
    Wrong("rest_in_the_last", ["differ by one at most"], '''
-    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]
+    size = n // max(count, 1)
+    return [range(size * i, size * (i + 1) if i + 1 < count else n) for i in range(count)]
'''),
    Wrong("rest_is_lost", ["the blocks is not what it should be"], '''
-    return [range(n * i // count, n * (i + 1) // count) for i in range(count)]
+    size = n // max(count, 1)
+    return [range(size * i, size * (i + 1)) for i in range(count)]
'''),
    Wrong("rounded_down", ["peak of sqrt_n_plan"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    count = min(counts, key=lambda k: k + memory * (n // k), default=0)
'''),
    Wrong("segment_costs_one_block", ["a cheaper plan"], '''
-            time = again * sum(times[start:end])
+            time = again * times[start]
'''),
    Wrong("single_blocks", ["longer segments hold less"], '''
-        for start, again in [*((start, True) for start in range(end)), (end - 1, False)]:
+        for start, again in [*((start, True) for start in (end - 1,)), (end - 1, False)]:
'''),
    Wrong("square_root_neighbours", ["peak of sqrt_n_plan"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    root = int((n * memory) ** 0.5)
+    near = [k for k in range(root - 1, root + 3) if 0 < k <= n] or [n]
+    count = min(near, key=lambda k: k + memory * -(-n // k) if k else 0)
'''),
    Wrong("square_root_rounded", ["peak of sqrt_n_plan"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    count = min(n, int((n * memory) ** 0.5))
'''),
    Wrong("zero_blocks", ["division"], '''
-    count = min(counts, key=lambda k: k + memory * -(-n // k), default=0)
+    count = max(1, round((n * memory) ** 0.5))
+    size = n // count or n // n
'''),
]

RIGHT = [
    Right("variant_cached", "from the first block on, with a cache; segments of one size and a shorter last one", '''
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
'''),
    Right("variant_front", "plans that others beat are forgotten", '''
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
        front, least = {}, None
        for held in sorted(found):
            if least is None or found[held][0] < least:
                least = found[held][0]
                front[held] = found[held]
        best.append(front)
    if not best[n]:
        raise ValueError(f"no plan of {n} blocks is within {budget}")
    return min(best[n].values(), key=lambda option: option[0])[1]
'''),
    Right("variant_kept_together", "several blocks kept as one segment", '''
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
        for start, again in [*((start, True) for start in range(end)), *((start, False) for start in reversed(range(end)))]:
            inside = sum(memories[start:end])
            holds, more = (1, inside) if again else (inside, 0)
            time = again * sum(times[start:end])
            for held, (before, plan) in best[start].items():
                now, cost = held + holds, before + time
                if now + more <= budget and (now not in found or cost <= found[now][0]):
                    found[now] = cost, [*plan, (range(start, end), again)]
        best.append(found)
    if not best[n]:
        raise ValueError(f"no plan of {n} blocks is within {budget}")
    return min(best[n].values(), key=lambda option: option[0])[1]
'''),
]
