"""Wrong and right answers to `schedule_under_memory`: `course dev show schedule_under_memory`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("no_limit", ["activations are held is too large"], '''
-            if micro == micro_batches or (letter == "F" and held >= max(1, limits[rank] - less)):
+            if micro == micro_batches:
'''),
    Wrong("freed_by_input_gradients", ["activations are held is too large"], '''
-            held = micro - done["W"][rank]
+            held = micro - done["I"][rank]
'''),
    Wrong("no_weight_gradients", ["this schedule cannot run", "runs FI"], '''
-    return min(
+    plan = min(
@@
-    )[1]
+    )[1]
+    return [[text for text in line if "W" not in text] for line in plan]
'''),
    Wrong("weights_for_input", ["this schedule cannot run"], '''
-    return min(
+    plan = min(
@@
-    )[1]
+    )[1]
+    return [[text.translate({73: 87, 87: 73}) for text in line] for line in plan]
'''),
    Wrong("no_stage", ["rank r runs stage r"], '''
-    return min(
+    plan = min(
@@
-    )[1]
+    )[1]
+    return [["0" + text.lstrip("0123456789") for text in line] for line in plan]
'''),
    Wrong("last_rank_first", ["this schedule cannot run", "a deadlock"], '''
-    return min(
+    plan = min(
@@
-    )[1]
+    )[1]
+    for rank, line in enumerate(plan[:-1]):
+        if micro_batches > 1 and limits[rank] > 1:
+            line.remove(f"{rank}F1")
+            line.insert(line.index(f"{rank}I0") + 1, f"{rank}F1")
+            last = plan[rank + 1]
+            last.remove(f"{rank + 1}F1")
+            last.insert(1, f"{rank + 1}F1")
+            break
+    return plan
'''),
]

RIGHT = [
    Right("mixed", "whole backwards and halves, the last micro-batch first, in tuples", '''
def schedule_under_memory(forward, input, weight, message, limits, micro_batches):
    plan = []
    for rank in range(len(forward)):
        line = ()
        for micro in reversed(range(micro_batches)):
            whole = (micro + rank) % 2
            line += tuple(f"{rank}{letter}{micro}" for letter in ("FB" if whole else "FIW"))
        plan.append(line)
    return tuple(plan)
'''),
    Right("trivial", "1F1B, with as many forwards ahead as the limits allow", '''
def schedule_under_memory(forward, input, weight, message, limits, micro_batches):
    lines, warm = [], micro_batches
    for rank in range(len(forward)):
        warm = min(warm, limits[rank] - 1, len(forward) - 1 - rank)
        line = [f"{rank}F{micro}" for micro in range(warm)]
        for micro in range(micro_batches):
            if warm + micro < micro_batches:
                line.append(f"{rank}F{warm + micro}")
            line.append(f"{rank}B{micro}")
        lines.append(line)
    return lines
'''),
    Right("one_after_the_other", "a micro-batch at a time", '''
def schedule_under_memory(forward, input, weight, message, limits, micro_batches):
    return [
        [f"{rank}{letter}{micro}" for micro in range(micro_batches) for letter in "FB"]
        for rank in range(len(forward))
    ]
'''),
]
