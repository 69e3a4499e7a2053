"""Wrong and right answers to `goodput`: see `course dev show goodput`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("every_attempt", ["a step that was repeated is useful only once"], '''
-        name = "repeated" if what == "step" and last[step] != (end, begin) else what
+        name = what
'''),
    Wrong("begins_last", ["the goodput of log"], '''
-        for begin, end, what, step in sorted(log, key=lambda s: s[1])
+        for begin, end, what, step in sorted(log, key=lambda s: s[0])
'''),
    Wrong("sorts_the_log", ["when they had been asked about"], '''
+    log.sort(key=lambda s: s[1])
     paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
'''),
    Wrong("first_attempt", ["the last attempt at a step is the useful one"], '''
-        for begin, end, what, step in sorted(log, key=lambda s: s[1])
+        for begin, end, what, step in sorted(log, key=lambda s: -s[1])
'''),
    Wrong("one_rank", ["the paid time counts every rank"], '''
-    paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
+    paid = max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)
'''),
    Wrong("from_zero", ["the goodput of log"], '''
-    paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
+    paid = max(end for _, end, _, _ in log) * ranks
'''),
    Wrong("idle_not_paid", ["idle time is paid for"], '''
-    paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
+    paid = sum(end - begin for begin, end, *_ in log)
'''),
    Wrong("log_in_order", ["the goodput of log"], '''
-    paid = (max(end for _, end, _, _ in log) - min(begin for begin, *_ in log)) * ranks
+    paid = (log[-1][1] - log[0][0]) * ranks
'''),
    Wrong("repeated_is_idle", ["the names in lost", "the shares of the paid time"], '''
+    shares.pop("repeated")
     return {**shares, "idle": 1 - sum(shares.values())}
'''),
]

RIGHT = [
    Right("sets", "sorted spans and a set of steps, from the end", '''
from collections import Counter


def lost(log, ranks):
    first, final = min(s[0] for s in log), max(s[1] for s in log)
    spent, seen = Counter(step=0.0, repeated=0.0), set()
    for begin, end, what, step in sorted(log, key=lambda s: s[1], reverse=True):
        if what == "step":
            what = "repeated" if step in seen else "step"
            seen.add(step)
        spent[what] += end - begin
    spent["idle"] = (final - first) * ranks - sum(spent.values())
    return {what: seconds / ((final - first) * ranks) for what, seconds in spent.items()}


def goodput(log, ranks):
    return lost(log, ranks)["step"]
'''),
]
