"""Wrong and right answers to `split_stages`: see `course dev show split_stages`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("rounds_costs", ["the slowest stage is too slow"], '''
-    n = len(costs)
+    n, costs = len(costs), [round(cost) for cost in costs]
'''),
    Wrong("adds_in_float32", ["the slowest stage is too slow", "too narrow for these"], '''
-            return sum(costs[first:]), (range(first, n),)
+            return float(torch.tensor(costs[first:]).sum()), (range(first, n),)
@@
-            slowest = max(slowest, sum(costs[first:cut]))
+            slowest = max(slowest, float(torch.tensor(costs[first:cut]).sum()))
'''),
    Wrong("changes_costs", ["the costs were changed"], '''
-    n = len(costs)
+    n = len(costs)
+    costs[0] += 1e-9
'''),
    Wrong("sums_in_float64", ["bytes"], '''
-    all_reduce(weight.grad, pair)
+    total = weight.grad.double()
+    all_reduce(total, pair)
+    weight.grad = total.to(weight.dtype)
'''),
    Wrong("assertion", ["AssertionError", "fewer layers than stages"], '''
-    if n < p:  # mutate: same
-        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
+    assert n >= p, f"{n} layers for {p} stages"
@@
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
'''),
    Wrong("best_but_dealt_out", ["a stage is not contiguous"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    return [range(stage, n, p) for stage in range(p)]
'''),
    Wrong("closes_at_its_share", ["the slowest stage is too slow", "misses better cuts"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    share, begin, stages = sum(costs) / p, 0, []
+    for layer in range(n):
+        left = p - len(stages) - 1  # stages to come
+        enough = sum(costs[begin : layer + 1]) >= share or n - layer - 1 == left
+        if left and enough and n - layer - 1 >= left:
+            stages.append(range(begin, layer + 1))
+            begin = layer + 1
+    return [*stages, range(begin, n)]
'''),
    Wrong("closes_before_it_is_too_much", ["the slowest stage is too slow", "misses better cuts"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    stages, begin = [], 0
+    for left in range(p, 1, -1):
+        share, end = sum(costs[begin:]) / left, begin + 1
+        while end < n - left + 1 and sum(costs[begin : end + 1]) <= share:
+            end += 1
+        stages.append(range(begin, end))
+        begin = end
+    return [*stages, range(begin, n)]
'''),
    Wrong("empty_stage", ["is empty", "each stage needs at least one layer"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    stages, begin = [], 0
+    for left in range(p, 1, -1):
+        share, end = sum(costs[begin:]) / left, begin
+        while end < n and sum(costs[begin : end + 1]) <= share:
+            end += 1
+        stages.append(range(begin, end))
+        begin = end
+    return [*stages, range(begin, n)]
'''),
    Wrong("ends_alone", ["is not a list of ranges"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    return list(best(0, p)[1])
+    return [layers.stop for layers in best(0, p)[1]]
'''),
    Wrong("equal_counts", ["the slowest stage is too slow", "equal numbers of layers"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    ends = [n * stage // p for stage in range(p + 1)]
+    return [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]
'''),
    Wrong("error_without_numbers", ["text does not help"], '''
-        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
+        raise ValueError("too few layers")
@@
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
'''),
    Wrong("last_layer_lost", ["do not follow one another from 0 to"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    return list(best(0, p)[1])
+    *stages, last = best(0, p)[1]
+    return [*stages, range(last.start, max(last.start + 1, n - 1))]
'''),
    Wrong("least_squares", ["the slowest stage is too slow", "misses better cuts"], '''
         """The slowest stage of the layers from `first` on, and those stages."""
+        if stages == 1:
+            return sum(costs[first:]) ** 2, (range(first, n),)
@@
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
+        for cut in range(first + 1, n - stages + 2):
@@
-            slowest = max(slowest, sum(costs[first:cut]))
+            slowest += sum(costs[first:cut]) ** 2
'''),
    Wrong("lists_of_layers", ["is not a list of ranges"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    return list(best(0, p)[1])
+    return [list(layers) for layers in best(0, p)[1]]
'''),
    Wrong("no_error", ["no ValueError", "fewer layers than stages"], '''
-    if n < p:  # mutate: same
-        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
@@
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
'''),
    Wrong("tied_added_twice", ["own gradient is in it twice"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    all_reduce(weight.grad, pair)
+    total = weight.grad.clone()
+    all_reduce(total, pair)
+    if pair.size > 1:
+        weight.grad += total
'''),
    Wrong("tied_averaged", ["the mean of both"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    all_reduce(weight.grad, pair)
+    all_reduce(weight.grad, pair, "avg")
'''),
    Wrong("tied_averages_the_weights", ["the weight was changed"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
     all_reduce(weight.grad, pair)
+    with torch.no_grad():
+        weight -= 0.01 * weight.grad
'''),
    Wrong("tied_crashes_on_none", ["a rank without a gradient counts as zeros", "NoneType"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    if weight.grad is None:
-        weight.grad = torch.zeros_like(weight)
'''),
    Wrong("tied_not_summed", ["it is still this rank's own gradient"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    all_reduce(weight.grad, pair)
'''),
    Wrong("tied_sends_the_weight_too", ["twice as much"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
     all_reduce(weight.grad, pair)
+    copy = weight.detach().clone()
+    all_reduce(copy, pair, "avg")
'''),
    Wrong("tied_skips_none", ["a rank without a gradient counts as zeros", "deadlock"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    if weight.grad is None:
-        weight.grad = torch.zeros_like(weight)
-    all_reduce(weight.grad, pair)
+    if weight.grad is not None:
+        all_reduce(weight.grad, pair)
'''),
    Wrong("tied_sum_on_the_first_only", ["rank 2", "it is still this rank's own gradient"], '''
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
@@
-        for cut in range(first + 1, end):
+        found: tuple[float, tuple[range, ...]] = (math.inf, ())
+        for cut in range(first + 1, n - stages + 2):
@@
-    all_reduce(weight.grad, pair)
+    total = weight.grad.clone()
+    all_reduce(total, pair)
+    if pair.index == 0:
+        weight.grad = total
'''),
    Wrong("tries_all", ["100 layers on 16 stages", "far too slow"], '''
 from course_lib.comm import Group, all_reduce
+from itertools import combinations
@@
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    every = ((0, *cuts, n) for cuts in combinations(range(1, n), p - 1))
+
+    def slowest(ends: tuple[int, ...]) -> float:
+        return max(sum(costs[a:b]) for a, b in zip(ends, ends[1:], strict=False))
+
+    ends = min(every, key=slowest)
+    return [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]
'''),
    Wrong("whole_numbers_only", ["the slowest stage is too slow"], '''
-    @cache
-    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
-        """The slowest stage of the layers from `first` on, and those stages."""
-        found: tuple[float, tuple[range, ...]] = (math.inf, ())  # mutate: same
-        end = n - stages + 2  # a layer is left for each other stage  # mutate: same
-        if stages == 1:
-            return sum(costs[first:]), (range(first, n),)
-        for cut in range(first + 1, end):
-            slowest, rest = best(cut, stages - 1)
-            slowest = max(slowest, sum(costs[first:cut]))
-            if slowest < found[0]:
-                found = slowest, (range(first, cut), *rest)
-        return found
-
-    return list(best(0, p)[1])
+    limit = max(math.ceil(max(costs)), math.ceil(sum(costs) / p))
+    while True:
+        stages, begin = [], 0
+        for layer in range(1, n + 1):
+            full = layer < n and sum(costs[begin : layer + 1]) > limit
+            if layer == n or full or n - layer < p - len(stages):
+                stages.append(range(begin, layer))
+                begin = layer
+        if len(stages) <= p:
+            return stages
+        limit += 1
'''),
]

RIGHT = [
    Right("variant_bisection", "the smallest limit on a stage that p stages can keep, by halving", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")

    def within(limit: float) -> list[range]:
        stages, begin = [], 0
        for layer in range(1, n):
            full = sum(costs[begin : layer + 1]) > limit
            if full or n - layer < p - len(stages):  # a layer is left for each other stage
                stages.append(range(begin, layer))
                begin = layer
        return [*stages, range(begin, n)]

    low, high = max(costs), float(sum(costs))
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if len(within(middle)) <= p else (middle, high)
    return within(low if len(within(low)) <= p else high)


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
'''),
    Right("variant_from_the_end", "from the end; the gradient in place", '''
from collections.abc import Sequence
from functools import cache

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")

    @cache
    def best(end: int, stages: int) -> tuple[float, tuple[range, ...]]:
        if stages == 1:
            return sum(costs[:end]), (range(end),)
        options = []
        for cut in range(stages - 1, end):
            slowest, before = best(cut, stages - 1)
            options.append((max(slowest, sum(costs[cut:end])), cut, before))
        slowest, cut, before = min(options, key=lambda option: option[:2])
        return slowest, (*before, range(cut, end))

    return list(best(n, p)[1])


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
'''),
    Right("variant_tables", "tables instead of recursion; last of the best cuts; messages for the weight", '''
from collections.abc import Sequence
from itertools import accumulate

import torch

from course_lib.comm import Group, exchange


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
    upto = [0, *accumulate(costs)]
    best: dict[tuple[int, int], tuple[float, int]] = {}  # layers, stages: the slowest, its begin
    for end in range(1, n + 1):
        best[end, 1] = (upto[end], 0)
    for stages in range(2, p + 1):
        for end in range(stages, n + 1):
            best[end, stages] = min(
                (max(best[cut, stages - 1][0], upto[end] - upto[cut]), -cut)
                for cut in range(stages - 1, end)
            )
    found, end = [], n
    for stages in range(p, 0, -1):
        begin = -best[end, stages][1] if stages > 1 else 0
        found.append(range(begin, end))
        end = begin
    return found[::-1]


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    mine = torch.zeros_like(weight.data) if weight.grad is None else weight.grad.contiguous()
    weight.grad = mine
    if pair.size == 2:
        other = torch.empty_like(mine)
        exchange(mine, pair.next, other, pair.next, pair)
        weight.grad = mine + other
'''),
]
