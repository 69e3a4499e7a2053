"""Wrong and right answers to `memory_imbalance`: see `course dev show memory_imbalance`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("as_many_as_the_first", ["every stage holds as many micro-batches as the first"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = min(len(cut), micro_batches)
@@
-        flying = min(stages - stage, micro_batches)
+        flying = min(stages, micro_batches)
'''),
    Wrong("empty_stages", ["this is no cut", "at least one block on each stage"], '''
-            for end in range(start + 1, len(blocks) + 1):
-                size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
+            for end in range(start, len(blocks) + 1):
+                if end > start:
+                    size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
'''),
    Wrong("ends_missing_in_the_cut", ["could be smaller", "embedding and head are missing"], '''
-    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
-        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
'''),
    Wrong("equal_counts", ["equal numbers of blocks: count bytes"], '''
-    blocks = [list(block) for block in costs.blocks]
-    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
-        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
-    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by blocks placed: largest stage, cut
-    for stage in range(stages):
-        found: dict[int, tuple[int, list[int]]] = {}
-        flying = min(stages - stage, micro_batches)
-        for start, (before, cut) in best.items():
-            size = 0
-            for end in range(start + 1, len(blocks) + 1):
-                size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
-                largest = max(before, size)
-                if end not in found or largest < found[end][0]:
-                    found[end] = largest, [*cut, end - start]
-        best = found
-    return best[len(blocks)][1]
+    n = len(costs.blocks)
+    return [n // stages + (stage < n % stages) for stage in range(stages)]
'''),
    Wrong("every_cut", ["balance: seventy blocks on sixteen stages", "balance: the best of all cuts"], '''
 from typing import NamedTuple
+from itertools import combinations
@@
-    blocks = [list(block) for block in costs.blocks]
-    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
-        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
-    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by blocks placed: largest stage, cut
-    for stage in range(stages):
-        found: dict[int, tuple[int, list[int]]] = {}
-        flying = min(stages - stage, micro_batches)
-        for start, (before, cut) in best.items():
-            size = 0
-            for end in range(start + 1, len(blocks) + 1):
-                size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
-                largest = max(before, size)
-                if end not in found or largest < found[end][0]:
-                    found[end] = largest, [*cut, end - start]
-        best = found
-    return best[len(blocks)][1]
+    n = len(costs.blocks)
+    cuts = []
+    for inner in combinations(range(1, n), stages - 1):
+        bounds = [0, *inner, n]
+        cuts.append([b - a for a, b in zip(bounds, bounds[1:])])
+    return min(cuts, key=lambda cut: max(stage_bytes(costs, cut, micro_batches)))
'''),
    Wrong("few_micro_batches", ["there are only m micro-batches to hold"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = len(cut) - stage
@@
-        flying = min(stages - stage, micro_batches)
+        flying = stages - stage
'''),
    Wrong("forgets_the_ends", ["embedding and head are missing"], '''
-        layers += [costs.embedding] if stage == 0 else []
-        layers += [costs.head] if stage == len(cut) - 1 else []
@@
-    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
-        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
'''),
    Wrong("gpipe", ["all m micro-batches on every stage"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = micro_batches
@@
-        flying = min(stages - stage, micro_batches)
+        flying = micro_batches
'''),
    Wrong("greedy", ["filling one stage after the other is not enough"], '''
-    blocks = [list(block) for block in costs.blocks]
-    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
-        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
-    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by blocks placed: largest stage, cut
-    for stage in range(stages):
-        found: dict[int, tuple[int, list[int]]] = {}
-        flying = min(stages - stage, micro_batches)
-        for start, (before, cut) in best.items():
-            size = 0
-            for end in range(start + 1, len(blocks) + 1):
-                size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
-                largest = max(before, size)
-                if end not in found or largest < found[end][0]:
-                    found[end] = largest, [*cut, end - start]
-        best = found
-    return best[len(blocks)][1]
+    n = len(costs.blocks)
+    whole = sum(stage_bytes(costs, [1] * n, 1))
+    cut, start = [], 0
+    for stage in range(stages - 1):
+        count = 1
+        while start + count < n - (stages - stage - 1):
+            trial = [*cut, count + 1] + [1] * (stages - stage - 1)
+            if stage_bytes(costs, trial, micro_batches)[stage] > whole / stages * 1.5:
+                break
+            count += 1
+        cut.append(count)
+        start += count
+    return [*cut, n - start]
'''),
    Wrong("one_in_flight", ["one micro-batch on every stage"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = 1
@@
-        flying = min(stages - stage, micro_batches)
+        flying = 1
'''),
    Wrong("one_in_flight_in_the_cut", ["could be smaller", "one micro-batch on every stage"], '''
-        flying = min(stages - stage, micro_batches)
+        flying = 1
'''),
    Wrong("one_too_few", ["one too few in flight"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = min(len(cut) - stage - 1, micro_batches)
@@
-        flying = min(stages - stage, micro_batches)
+        flying = min(stages - stage - 1, micro_batches)
'''),
    Wrong("over_the_smallest", ["the largest over the smallest"], '''
-    return max(sizes) * len(sizes) / sum(sizes)
+    return max(sizes) / min(sizes)
'''),
    Wrong("sum_for_the_largest", ["could be smaller"], '''
-                largest = max(before, size)
+                largest = before + size
'''),
    Wrong("without_the_largest", ["the mean of the others"], '''
-    return max(sizes) * len(sizes) / sum(sizes)
+    return max(sizes) * max(1, len(sizes) - 1) / ((sum(sizes) - max(sizes)) or 1)
'''),
    Wrong("wrong_end", ["the wrong end: the first stage waits longest"], '''
-        flying = min(len(cut) - stage, micro_batches)
+        flying = min(stage + 1, micro_batches)
@@
-        flying = min(stages - stage, micro_batches)
+        flying = min(stage + 1, micro_batches)
'''),
]

RIGHT = [
    Right("variant_limit", "searches the smallest limit into which the stages can be filled", '''
from collections.abc import Sequence
from typing import NamedTuple


class Layer(NamedTuple):
    """What a layer needs.

    Attributes:
        parameters: how many.
        activations: bytes kept for each micro-batch in flight.
    """

    parameters: int
    activations: int


class Costs(NamedTuple):
    """A model, from the tokens to the logits.

    Attributes:
        embedding: always on the first stage.
        blocks: in order; they may differ.
        head: always on the last stage.
    """

    embedding: Layer
    blocks: Sequence[Layer]
    head: Layer


def stage_bytes(costs: Costs, cut: Sequence[int], micro_batches: int) -> list[int]:
    """Bytes on each stage.

    Args:
        costs: the model.
        cut: the number of blocks of each stage.
        micro_batches: m, of one step.
    """
    sizes, start = [], 0
    for stage, count in enumerate(cut):
        layers = list(costs.blocks[start : start + count])
        layers += [costs.embedding] if stage == 0 else []
        layers += [costs.head] if stage == len(cut) - 1 else []
        flying = min(len(cut) - stage, micro_batches)
        sizes.append(sum(16 * one.parameters + one.activations * flying for one in layers))
        start += count
    return sizes


def imbalance(sizes: Sequence[int]) -> float:
    """The largest stage as a multiple of the mean: 1.0 is even, 1.5 needs half as much again."""
    return max(sizes) * len(sizes) / sum(sizes)


def balance(costs: Costs, stages: int, micro_batches: int) -> list[int]:
    """The cut whose largest stage is smallest.

    Args:
        costs: the model, with at least as many blocks as stages.
        stages: p.
        micro_batches: m, of one step.
    """
    n = len(costs.blocks)

    def fill(limit):
        cut, start = [], 0
        for stage in range(stages):
            count = n - start if stage == stages - 1 else 1
            while stage < stages - 1 and start + count < n - (stages - stage - 1):
                if part(stage, start, count + 1) > limit:
                    break
                count += 1
            if part(stage, start, count) > limit:
                return None
            cut.append(count)
            start += count
        return cut

    def part(stage, start, count):
        layers = list(costs.blocks[start : start + count])
        layers += [costs.embedding] * (stage == 0) + [costs.head] * (stage == stages - 1)
        flying = min(stages - stage, micro_batches)
        return sum(16 * parameters + activations * flying for parameters, activations in layers)

    low, high = 0, sum(stage_bytes(costs, [1] * n, micro_batches))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fill(middle) else (middle + 1, high)
    return fill(low)
'''),
    Right("variant_recursion", "remembers the best cut of the last blocks", '''
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple


class Layer(NamedTuple):
    """What a layer needs.

    Attributes:
        parameters: how many.
        activations: bytes kept for each micro-batch in flight.
    """

    parameters: int
    activations: int


class Costs(NamedTuple):
    """A model, from the tokens to the logits.

    Attributes:
        embedding: always on the first stage.
        blocks: in order; they may differ.
        head: always on the last stage.
    """

    embedding: Layer
    blocks: Sequence[Layer]
    head: Layer


def stage_bytes(costs: Costs, cut: Sequence[int], micro_batches: int) -> list[int]:
    """Bytes on each stage.

    Args:
        costs: the model.
        cut: the number of blocks of each stage.
        micro_batches: m, of one step.
    """
    sizes, start = [], 0
    for stage, count in enumerate(cut):
        layers = list(costs.blocks[start : start + count])
        layers += [costs.embedding] if stage == 0 else []
        layers += [costs.head] if stage == len(cut) - 1 else []
        flying = min(len(cut) - stage, micro_batches)
        sizes.append(sum(16 * one.parameters + one.activations * flying for one in layers))
        start += count
    return sizes


def imbalance(sizes: Sequence[int]) -> float:
    """The largest stage as a multiple of the mean: 1.0 is even, 1.5 needs half as much again."""
    return max(sizes) * len(sizes) / sum(sizes)


def balance(costs: Costs, stages: int, micro_batches: int) -> list[int]:
    """The cut whose largest stage is smallest.

    Args:
        costs: the model, with at least as many blocks as stages.
        stages: p.
        micro_batches: m, of one step.
    """
    n = len(costs.blocks)

    @cache
    def rest(stage, start):
        flying = min(stages - stage, micro_batches)
        size = 16 * costs.embedding.parameters + costs.embedding.activations * flying
        size *= stage == 0
        if stage == stages - 1:
            layers = [*costs.blocks[start:], costs.head]
            return size + sum(16 * p + a * flying for p, a in layers), (n - start,)
        options = []
        for end in range(start + 1, n - (stages - stage - 1) + 1):
            size += 16 * costs.blocks[end - 1].parameters
            size += costs.blocks[end - 1].activations * flying
            worst, cut = rest(stage + 1, end)
            options.append((max(size, worst), (end - start, *cut)))
        return min(options)

    return list(rest(0, 0)[1])
'''),
]
