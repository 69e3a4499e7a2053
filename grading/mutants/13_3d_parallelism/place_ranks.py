"""Wrong and right answers to `place_ranks`: see `course dev show place_ranks`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("moved_not_exchanged", ["the number of ranks on node"], '''
-            home[a], home[b] = home[b], home[a]
+            home[a] = home[b]
'''),
    Wrong("a_list_for_each_node", ["not a list with one node for each rank"], '''
-    return _exchanged(best, near, rates)
+    home = _exchanged(best, near, rates)
+    return [[r for r in range(len(home)) if home[r] == n] for n in range(len(rates))]
'''),
    Wrong("ranks_node_after_node", ["there is no node"], '''
-    return _exchanged(best, near, rates)
+    home = _exchanged(best, near, rates)
+    return sorted(range(len(home)), key=lambda rank: home[rank])
'''),
    Wrong("all_on_the_fastest", ["the number of ranks on node"], '''
-    return _exchanged(best, near, rates)
+    return [rates.index(max(rates))] * len(ranks)
'''),
    Wrong("no_seed", ["two ranks that get the same case"], '''
-    home, lots = [*home], random.Random(0)
+    home, lots = [*home], random.SystemRandom()
'''),
    Wrong("seeded_by_a_text", ["two ranks that get the same case", "nor by `hash` of a text"], '''
-    home, lots = [*home], random.Random(0)
+    home, lots = [*home], random.Random(hash("place_ranks"))
'''),
    Wrong("seeded_by_an_address", ["two ranks that get the same case", "nor by `hash` of a text"], '''
-    home, lots = [*home], random.Random(0)
+    home, lots = [*home], random.Random(id(_exchanged))
'''),
    Wrong("seeded_once", ["keep nothing between calls"], '''
-    home, lots = [*home], random.Random(0)
+    home, lots = [*home], LOTS
@@
 def place_ranks(
+    shape: Sequence[int], sizes: Sequence[int], per_node: int, rates: Sequence[int]
+) -> list[int]:
+    return _placed(shape, sizes, per_node, rates)
+
+
+LOTS = random.Random(0)
+
+
+def _placed(
'''),
]

RIGHT = [
    Right("trivial", "in order", '''
from math import prod


def place_ranks(shape, sizes, per_node, rates):
    return [rank // per_node for rank in range(prod(shape))]
'''),
    Right("heaviest_inside", "in order, with the axes sorted by their bytes", '''
from itertools import product


def place_ranks(shape, sizes, per_node, rates):
    axes = sorted(range(len(shape)), key=lambda axis: sizes[axis])
    places = list(product(*map(range, shape)))
    order = sorted(places, key=lambda place: tuple(place[axis] for axis in axes))
    where = {place: number // per_node for number, place in enumerate(order)}
    return [where[place] for place in places]
'''),
]
