"""Wrong and right answers to `dualpipe_v`: see `course dev show dualpipe_v`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_backwards_whole", ["takes too long", "which backwards must be whole"], '''
-        ("I1 W F1", late),
+        ("B1 F1", late),
@@
-        ("B1 I0", odd),
-        ("I1 I0", half),
-        ("W I0", late),
-        ("W", rank + 1),
+        ("B1 B0", odd),
+        ("B1 B0", half),
+        ("B0", late),
'''),
    Wrong("backward_of_the_same_chunk", ["a deadlock", "waits for", "pairs of a forward and a backward of the other chunk"], '''
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
-        ("B1 F1 B0", late),
+        ("F1 B1 F0 B0", m - 2 * late - rank - 1),
+        ("F1 B1 B0", late),
'''),
    Wrong("middle_too_short", ["stage 0 runs nothing for micro-batch 3"], '''
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
+        ("F0 B1 F1 B0", m - 2 * late - rank - 2),
'''),
    Wrong("one_micro_batch_fewer_at_first", ["phases 1 and 2 make it"], '''
-        ("F0", 2 * late),
+        ("F0", late),
@@
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
-        ("B1 F1 B0", late),
+        ("F0 B1 F1 B0", m - late - rank - 1),
+        ("B1 F1 B0", 0),
'''),
    Wrong("stages_one_after_another", ["rank 0 runs 1F0", "but it holds another stage", "actions of stage 0 and 3"], '''
-    return play(phases, (rank, 2 * p - 1 - rank))
+    return play(phases, (2 * rank, 2 * rank + 1))
'''),
    Wrong("weights_kept_too_long", ["holds the activations of", "forwards (of both chunks) at once"], '''
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
-        ("B1 F1 B0", late),
+        ("F0 I1 F1 B0", m - 2 * late - rank - 1),
+        ("I1 F1 B0", late),
@@
-        ("W", rank + 1),
+        ("W", rank + 1 + late + m - 2 * late - rank - 1),
'''),
    Wrong("zb_v", ["an import that this exercise does not allow: course_lib.schedule.zb_v"], '''
+from course_lib.schedule import zb_v
 def dualpipe_v(rank: int, p: int, m: int) -> list[str]:
@@
-    late = p - 1 - rank
-    half, odd = divmod(rank + 1, 2)
-    phases = [
-        ("F0", 2 * late),
-        ("F0 F1", rank + 1),
-        ("I1 W F1", late),
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
-        ("B1 F1 B0", late),
-        ("B1 B0", half),
-        ("B1 I0", odd),
-        ("I1 I0", half),
-        ("W I0", late),
-        ("W", rank + 1),
-    ]
-    return play(phases, (rank, 2 * p - 1 - rank))
+    return [str(action) for action in zb_v(p, m).actions[rank]]
'''),
]

RIGHT = [
    Right("variant_written_out", "the eight phases as loops, numbers from counters", '''
from collections import deque
from itertools import count


def dualpipe_v(rank, p, m):
    first, second, late = rank, 2 * p - 1 - rank, p - 1 - rank
    forwards = {first: count(), second: count()}
    backwards = {first: count(), second: count()}
    plan, halves = [], deque()

    def forward(stage):
        plan.append(f"{stage}F{next(forwards[stage])}")

    def backward(stage, whole=True):
        micro = next(backwards[stage])
        plan.append(f"{stage}{'B' if whole else 'I'}{micro}")
        if not whole:
            halves.append(f"{stage}W{micro}")

    for _ in range(2 * late):
        forward(first)
    for _ in range(rank + 1):
        forward(first)
        forward(second)
    for _ in range(late):
        backward(second, whole=False)
        plan.append(halves.popleft())
        forward(second)
    while len([word for word in plan if word.startswith(f"{first}F")]) < m:
        forward(first)
        backward(second)
        forward(second)
        backward(first)
    for _ in range(late):
        backward(second)
        forward(second)
        backward(first)
    for number in range(2 * (rank + 1)):
        backward(first if number % 2 else second, whole=number <= rank)
    for _ in range(late):
        plan.append(halves.popleft())
        backward(first, whole=False)
    return plan + list(halves)
'''),
]
