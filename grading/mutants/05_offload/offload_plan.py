"""Wrong and right answers to `offload_plan`: see `course dev show offload_plan`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("any_budget", ["the number of bytes on the device at one time is too large"], '''
-            if peak <= budget and time < best * (1 - 1e-9):
+            if time < best * (1 - 1e-9):
'''),
    Wrong("gone_when_asked_for", ["the number of bytes on the device at one time is too large"], '''
-            changes.append((link, -sizes[layer]))
+            changes.append((now, -sizes[layer]))
@@
-            changes.append((start, sizes[layer]))
+            changes.append((begin, sizes[layer]))
'''),
    Wrong("other_words", ["this is not a valid choice"], '''
-    return plan
+    return ["offload" if isinstance(choice, int) else choice.upper() for choice in plan]
'''),
    Wrong("moved_layers_alone", ["not a list with one choice for each layer"], '''
-    return plan
+    return [layer for layer in layers if plan[layer] != "keep"]
'''),
    Wrong("half_a_layer_ahead", ["this is not a valid choice"], '''
-    return plan
+    return [choice if isinstance(choice, str) else choice + 0.5 for choice in plan[:-1]] + [0.5]
'''),
]

RIGHT = [
    Right("trivial", "all computed again", '''
def offload_plan(forward, backward, sizes, budget, rate):
    return ["again"] * len(sizes)
'''),
    Right("keeps_what_fits", "from the last layer on, the others computed again", '''
def offload_plan(forward, backward, sizes, budget, rate):
    room, choices = budget - max(sizes), []
    for size in reversed(sizes):
        choices.insert(0, "keep" if size <= room else "again")
        room -= size if size <= room else 0
    return tuple(choices)
'''),
]
