"""Wrong and right answers to `fastest_layout`: see `course dev show fastest_layout`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("one_layout_for_all", ["refuses this layout"], '''
-    return LAYOUTS[cluster, room]
+    return {"dp": 32, "zero": 3}
'''),
    Wrong("a_rank_too_few", ["refuses this layout", "exactly one place on the mesh"], '''
-    return LAYOUTS[cluster, room]
+    layout = dict(LAYOUTS[cluster, room])
+    return {**layout, "dp": layout["dp"] // 2}
'''),
    Wrong("memory_forgotten", ["case 1: a rank holds too much"], '''
-    return LAYOUTS[cluster, room]
+    return LAYOUTS[cluster, 80 if room == 3 else room]
'''),
    Wrong("a_smaller_batch", ["is not an option of the layout"], '''
-    return LAYOUTS[cluster, room]
+    return {**LAYOUTS[cluster, room], "batch": 32}
'''),
    Wrong("a_command_line", ["not a dict of options"], '''
-    return LAYOUTS[cluster, room]
+    return " ".join(f"--{name} {value}" for name, value in LAYOUTS[cluster, room].items())
'''),
    Wrong("numbers_as_text", ["dp is"], '''
-    return LAYOUTS[cluster, room]
+    return {name: str(value) for name, value in LAYOUTS[cluster, room].items()}
'''),
    Wrong("many_micro_batches", ["the number of micro-batches"], '''
-    return LAYOUTS[cluster, room]
+    layout = dict(LAYOUTS[cluster, room])
+    return {"pp": 4, "tp": 8, "dp": 1, "zero": 1, "micro_batches": 32} if room == 3 else layout
'''),
]

RIGHT = [
    Right("trivial", "tensor parallelism in the node, and everything computed again", '''
def fastest_layout(cluster, room, run):
    replicas = 4
    micro_batches = run["batch"] // replicas if run["batch"] < 64 else 16
    return {"dp": replicas, "tp": 8, "zero": 1, "recompute": "full", "micro_batches": micro_batches}
'''),
]
