"""Wrong and right answers to `dualpipe_v`: see `course dev show dualpipe_v`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_backwards_whole", ["takes too long", "which backwards are whole"], '''
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
    Wrong("weights_kept_too_long", ["holds the activations of"], '''
-        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
-        ("B1 F1 B0", late),
+        ("F0 I1 F1 B0", m - 2 * late - rank - 1),
+        ("I1 F1 B0", late),
@@
-        ("W", rank + 1),
+        ("W", rank + 1 + late + m - 2 * late - rank - 1),
'''),
    Wrong("zb_v", ["forwards of one chunk beside backwards of the other", "rank 0 has"], '''
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
    Right("variant_library", "the course's own schedule", '''
from course_lib.schedule import dualpipe_v as whole


def dualpipe_v(rank: int, p: int, m: int) -> list[str]:
    return [str(action) for action in whole(p, m).actions[rank]]
'''),
]
