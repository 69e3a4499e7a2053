"""Wrong and right answers to `interval`: see `course dev show interval`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("window_prolonged", ["the window begins with an incident's first report"], '''
     found: list[float] = []
     for time in reports:
-        if not found or time - found[-1] >= window:
+        if not found or time - last >= window:
             found.append(time)
+        last = time
'''),
    Wrong("start_is_an_incident", ["the incidents of reports"], '''
-    found: list[float] = []
+    found: list[float] = [0.0]
@@
-    return found
+    return found[1:]
'''),
    Wrong("limit_above_one", ["the interval of reports"], '''
-    if r >= 1:
+    if r > 1:
'''),
    Wrong("limit_of_the_save", ["the interval of reports"], '''
-    if r >= 1:
+    if save >= mean:
'''),
    Wrong("whole_seconds", ["the incidents of reports"], '''
-            found.append(time)
+            found.append(int(time))
'''),
    Wrong("every_report", ["every report counts as an incident"], '''
-        if not found or time - found[-1] >= window:
-            found.append(time)
+        found.append(time)
'''),
    Wrong("end_of_window", ["the incidents of reports"], '''
-        if not found or time - found[-1] >= window:
+        if not found or time - found[-1] > window:
'''),
    Wrong("from_the_first", ["the first gap begins at the job's start"], '''
-    return times[-1] / len(times)
+    return (times[-1] - times[0]) / max(1, len(times) - 1) or 1.0
'''),
    Wrong("mean_of_times", ["this is the mean of the times"], '''
-    return times[-1] / len(times)
+    return sum(times) / len(times)
'''),
    Wrong("deviation", ["not the standard error of their mean"], '''
-    return math.sqrt(variance / len(gaps))
+    return math.sqrt(variance)
'''),
    Wrong("young", ["this is Young's interval"], '''
-    return math.sqrt(2 * save * mean) * (1 + math.sqrt(r) / 3 + r / 9) - save
+    return math.sqrt(2 * save * mean)
'''),
    Wrong("cost_stays", ["subtract the cost of a save"], '''
-    return math.sqrt(2 * save * mean) * (1 + math.sqrt(r) / 3 + r / 9) - save
+    return math.sqrt(2 * save * mean) * (1 + math.sqrt(r) / 3 + r / 9)
'''),
    Wrong("no_limit", ["the interval of reports"], '''
-    if r >= 1:
-        return mean
'''),
]

RIGHT = [
    Right("statistics", "with the statistics module and a recursion", '''
import math
import statistics


def incidents(reports, window):
    if not reports:
        return []
    first = reports[0]
    return [first, *incidents([time for time in reports if time - first >= window], window)]


def gaps(reports, window):
    times = incidents(reports, window)
    return [b - a for a, b in zip([0.0, *times], times)]


def mtbf(reports, window):
    return statistics.fmean(gaps(reports, window))


def spread(reports, window):
    each = gaps(reports, window)
    return statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else math.inf


def interval(save, reports, window):
    mean = mtbf(reports, window)
    x = math.sqrt(save / mean / 2)
    return mean if x >= 1 else 2 * mean * x * (1 + x / 3 + x * x / 9) - save
'''),
]
