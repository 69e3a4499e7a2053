"""Wrong and right answers to `fastest_layout`: see `course dev show fastest_layout`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("one_layout_for_all", ["refuses this layout"], '''
-    return layouts[cluster, room]
+    return {"dp": 32, "zero": 3}
'''),
    Wrong("half_of_the_ranks", ["refuses this layout", "exactly one place on the mesh"], '''
-    return layouts[cluster, room]
+    layout = dict(layouts[cluster, room])
+    return {**layout, "tp": layout.get("tp", 2) // 2}
'''),
    Wrong("memory_forgotten", ["case 1 (4x8xH100, 3 GB): a rank holds too much"], '''
-    return layouts[cluster, room]
+    gathered_only = {"dp": 32, "zero": 3}
+    return gathered_only if room == 3 else layouts[cluster, room]
'''),
    Wrong("a_smaller_batch", ["is not an option of the layout"], '''
-    return layouts[cluster, room]
+    return {**layouts[cluster, room], "batch": 32}
'''),
    Wrong("a_command_line", ["not a dict of options"], '''
-    return layouts[cluster, room]
+    return " ".join(f"--{name} {value}" for name, value in layouts[cluster, room].items())
'''),
    Wrong("numbers_as_text", ["zero is '3'"], '''
-    return layouts[cluster, room]
+    return {name: str(value) for name, value in layouts[cluster, room].items()}
'''),
    Wrong("many_micro_batches", ["the number of micro-batches"], '''
-    return layouts[cluster, room]
+    layout = dict(layouts[cluster, room])
+    return {"pp": 4, "tp": 8, "dp": 1, "zero": 1, "micro_batches": 32} if room == 3 else layout
'''),
    Wrong("a_quotient", ["dp is 32, of type float"], '''
-    return layouts[cluster, room]
+    return {"dp": 64 / 2, "zero": 3}
'''),
    Wrong("unknown_schedule", ["asked: --schedule zbv; found: gpipe, 1f1b"], '''
-    return layouts[cluster, room]
+    return {"dp": 16, "pp": 8, "micro_batches": 8, "schedule": "zbv"}
'''),
]

RIGHT = [
    Right("trivial", "tensor parallelism in the node, and everything computed again", '''
def fastest_layout(cluster, room, run):
    nodes = int(cluster.split("x")[0])
    replicas = min(nodes, run["batch"])
    micro_batches = min(16, run["batch"] // replicas)
    return {"dp": replicas, "tp": 8, "zero": 1, "recompute": "full", "micro_batches": micro_batches}
'''),
]
