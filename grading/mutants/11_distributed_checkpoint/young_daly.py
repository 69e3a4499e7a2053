"""Wrong and right answers to `young_daly`: see `course dev show young_daly`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("none_at_the_start", ["failures at [0"], '''
-    coming = iter(failures)
+    coming = iter([time for time in failures if time > 0])
'''),
    Wrong("takes_the_failures", ["has changed the list of failures"], '''
-    coming = iter(failures)
+    coming = iter(lambda: failures.pop(0) if failures else math.inf, math.inf)
'''),
    Wrong("adds_up_the_rests", ["the time of a job"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    coming = iter(failures)
-    failure = next(coming, math.inf)
-    now = saved = starting = 0.0
-    while saved < work:
-        piece = min(interval, work - saved)
-        end = now + starting + piece + cost
-        if failure < end:
-            now, starting = failure, restart
-            failure = next(coming, math.inf)
-        else:
-            now, starting, saved = end, 0.0, saved + piece
-    return now
+    lost = 0.0
+    for failure in failures:
+        lost += failure % (interval + cost) + restart
+    return work + work // interval * cost + lost
'''),
    Wrong("at_the_moment", ["at the moment at which it is complete"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-        if failure < end:
+        if failure <= end:
'''),
    Wrong("checkpoint_is_work", ["only the interval is work"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return 1 - (interval + cost) / (failures * (mtbf + restarting))
'''),
    Wrong("checkpoint_never_fails", ["the checkpoint is part of what starts over"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    failures = math.exp((interval + cost) / mtbf) - 1
+    failures = math.exp(interval / mtbf) - 1
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return 1 - interval / (failures * (mtbf + restarting) + cost)
'''),
    Wrong("cost_not_taken_off", ["the cost is not subtracted at the end"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9)
'''),
    Wrong("daly_is_young", ["this is Young's interval"], '''
-    r = cost / (2 * mtbf)
-    if r >= 1:
-        return mtbf
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf)
'''),
    Wrong("first_order", ["this is the first-order approximation"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    failures = math.exp((interval + cost) / mtbf) - 1
-    restarting = mtbf * (math.exp(restart / mtbf) - 1)
-    return 1 - interval / (failures * (mtbf + restarting))
+    return cost / interval + (interval + cost) / 2 / mtbf + restart / mtbf
'''),
    Wrong("instant_restart", ["a restart takes time"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-            now, starting = failure, restart
+            now, starting = failure, 0.0
'''),
    Wrong("keeps_unsaved_work", ["work that was not saved is lost"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
         if failure < end:
+            saved += min(max(failure - now - starting, 0.0), piece)
'''),
    Wrong("last_not_saved", ["the last work must be saved too"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-        end = now + starting + piece + cost
+        end = now + starting + piece + (cost if saved + piece < work else 0.0)
'''),
    Wrong("last_piece_full", ["the last piece is only what is left"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-        piece = min(interval, work - saved)
+        piece = interval
'''),
    Wrong("limit_at_the_mtbf", ["Daly's interval for"], '''
-    if r >= 1:
+    if r >= 0.5:
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("more_nodes_fail_less", ["more nodes fail more often"], '''
-    return node_mtbf / nodes
+    return node_mtbf * nodes
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("no_limit", ["at such a cost the interval is the mtbf"], '''
-    if r >= 1:
-        return mtbf
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("no_restarts", ["the restarts are missing"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return 1 - interval / (failures * (mtbf))
'''),
    Wrong("no_two", ["the 2 is missing"], '''
-    return math.sqrt(2 * cost * mtbf)
+    return math.sqrt(cost * mtbf)
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("nothing", ["nothing is returned"], '''
-    r = cost / (2 * mtbf)
-    if r >= 1:
-        return mtbf
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    math.sqrt(2 * cost * mtbf)
'''),
    Wrong("one_restart", ["this counts one restart for each interval"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return 1 - interval / (failures * mtbf + restart)
'''),
    Wrong("per_work", ["divide by all the time"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return failures * (mtbf + restarting) / interval - 1
'''),
    Wrong("r_without_two", ["r is the cost divided by twice the mtbf"], '''
-    r = cost / (2 * mtbf)
-    if r >= 1:
+    r = cost / mtbf
+    if r >= 2:
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("restart_never_fails", ["a failure during a restart begins it again"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    now = saved = starting = 0.0
+    now = saved = 0.0
@@
-        end = now + starting + piece + cost
+        end = now + piece + cost
@@
-            now, starting = failure, restart
-            failure = next(coming, math.inf)
+            now = failure + restart
+            while failure < now:
+                failure = next(coming, math.inf)
@@
-            now, starting, saved = end, 0.0, saved + piece
+            now, saved = end, saved + piece
'''),
    Wrong("restarts_never_fail", ["restarts fail as well"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    restarting = mtbf * (math.exp(restart / mtbf) - 1)
+    restarting = restart
'''),
    Wrong("torn_checkpoint", ["a checkpoint that a failure interrupts"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
         if failure < end:
+            saved += piece if failure >= now + starting + piece else 0.0
'''),
    Wrong("two_outside", ["the 2 belongs under the root"], '''
-    return math.sqrt(2 * cost * mtbf)
+    return 2 * math.sqrt(cost * mtbf)
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
    Wrong("two_terms", ["the term r/9 is missing"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3) - cost
'''),
    Wrong("useful_share", ["this is the share that is work"], '''
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
@@
-    return 1 - interval / (failures * (mtbf + restarting))
+    return interval / (failures * (mtbf + restarting))
'''),
    Wrong("young_less_cost", ["Young's interval does not contain the cost"], '''
-    return math.sqrt(2 * cost * mtbf)
+    return math.sqrt(2 * cost * mtbf) - cost
@@
-    return young(cost, mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
+    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost
'''),
]

RIGHT = [
    Right("another_way", "expm1, the closed form of the share, and a list of failures", '''
import math
from collections.abc import Sequence


def job_mtbf(node_mtbf: float, nodes: int) -> float:
    """Mean time between failures of a job of many nodes."""
    return node_mtbf / nodes


def young(cost: float, mtbf: float) -> float:
    """Young's interval."""
    return (2.0 * cost * mtbf) ** 0.5


def daly(cost: float, mtbf: float) -> float:
    """Daly's interval."""
    if cost >= 2 * mtbf:
        return mtbf
    x = (cost / mtbf / 2) ** 0.5
    return 2 * mtbf * x * (1 + x / 3 + x * x / 9) - cost


def lost_share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """The share of the time that goes into checkpoints, restarts and work done again."""
    each = mtbf * math.exp(restart / mtbf) * math.expm1((interval + cost) / mtbf)
    return (each - interval) / each


def elapsed(
    work: float, interval: float, cost: float, restart: float, failures: Sequence[float]
) -> float:
    """How long a job takes, from its start to its end, with these failures."""
    left, now, ready = list(failures)[::-1], 0.0, 0.0
    todo = [interval] * int(work // interval)
    if work % interval:
        todo.append(work % interval)
    while todo:
        end = ready + todo[0] + cost
        if left and left[-1] < end:
            now = left.pop()
            ready = now + restart
        else:
            now = ready = end
            todo.pop(0)
    return now
'''),
]
