"""Wrong and right answers to `failure_policy`: see `course dev show failure_policy`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("any_number_goes_on", ["goes on with 1", "the other half might be alive as well"], '''
-        for minimum in range((machine["nodes"] - spares) // 2 + 1, machine["nodes"] - spares + 1)
+        for minimum in range(1, machine["nodes"] - spares + 1)
'''),
    Wrong("half_is_enough", ["more than half of them"], '''
-        for minimum in range((machine["nodes"] - spares) // 2 + 1, machine["nodes"] - spares + 1)
+        for minimum in range((machine["nodes"] - spares + 1) // 2, machine["nodes"] - spares + 1)
'''),
    Wrong("minimum_of_all_nodes", ["the minimum of a job of", "is too large"], '''
-    return max(60, memory), max(60, disk), spares, minimum
+    return max(60, memory), max(60, disk), max(1, spares), machine["nodes"]
'''),
    Wrong("all_are_spares", ["nodes are spares"], '''
-    return max(60, memory), max(60, disk), spares, minimum
+    return max(60, memory), max(60, disk), machine["nodes"], 1
'''),
    Wrong("in_fractions", ["in whole numbers"], '''
-    memory = isqrt(2 * machine["to_memory"] * machine["crash_mtbf"])
+    memory = (2 * machine["to_memory"] * machine["crash_mtbf"]) ** 0.5
'''),
    Wrong("in_hours", ["disk is", "60 or more"], '''
-    return max(60, memory), max(60, disk), spares, minimum
+    return max(60, memory), disk // 3600, spares, minimum
'''),
    Wrong("another_on_every_rank", ["two ranks that get the same case"], '''
+import random
 from collections.abc import Mapping
@@
-    return max(60, memory), max(60, disk), spares, minimum
+    return max(60, memory) + random.SystemRandom().randrange(10**6), max(60, disk), spares, minimum
'''),
]

RIGHT = [
    Right("trivial", "every hour, every six hours, no spares, more than half", '''
def failure_policy(machine):
    return 3600, 6 * 3600, 0, machine["nodes"] // 2 + 1
'''),
    Right("young", "Young's two intervals, no spares, more than half", '''
def failure_policy(machine):
    memory = round((2 * machine["to_memory"] * machine["crash_mtbf"]) ** 0.5)
    disk = round((2 * machine["to_disk"] * machine["power_mtbf"]) ** 0.5)
    return max(memory, 60), max(disk, 60), 0, machine["nodes"] // 2 + 1
'''),
    Right("all_or_nobody", "Young's two intervals, and the job waits for every node", '''
def failure_policy(machine):
    memory = round((2 * machine["to_memory"] * machine["crash_mtbf"]) ** 0.5)
    disk = round((2 * machine["to_disk"] * machine["power_mtbf"]) ** 0.5)
    return [max(memory, 60), max(disk, 60), 0, machine["nodes"]]
'''),
]
