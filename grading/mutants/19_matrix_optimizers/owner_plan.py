"""Wrong and right answers to `owner_plan`: see `course dev show owner_plan`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("no_limit", ["elements that all ranks send is too large"], '''
-                if self.sent + more <= limit and sum(load**4 for load in new.values()) < old:
+                if sum(load**4 for load in new.values()) < old:
'''),
    Wrong("one_way_counted", ["elements that all ranks send is too large", "count twice"], '''
-        self.sent = sum(2 * (sum(p) - p[o]) for o, p in zip(owners, pieces, strict=True))
+        self.sent = sum(sum(p) - p[o] for o, p in zip(owners, pieces, strict=True))
@@
-            more += 2 * (self.pieces[n][old] - self.pieces[n][owner])
+            more += self.pieces[n][old] - self.pieces[n][owner]
'''),
    Wrong("round_robin", ["dealt out in turn"], '''
-    return min(valid, key=lambda plan: max(plan.loads)).owners
+    return [n % len(pieces[0]) for n in range(len(shapes))]
'''),
    Wrong("a_list_for_each_rank", ["not a list with one owner for each matrix"], '''
-    return min(valid, key=lambda plan: max(plan.loads)).owners
+    owners = min(valid, key=lambda plan: max(plan.loads)).owners
+    return [[n for n, o in enumerate(owners) if o == i] for i in range(len(pieces[0]))]
'''),
    Wrong("counted_from_one", ["there is no rank"], '''
-    return min(valid, key=lambda plan: max(plan.loads)).owners
+    return [owner + 1 for owner in min(valid, key=lambda plan: max(plan.loads)).owners]
'''),
    Wrong("another_on_every_rank", ["two ranks that get the same case"], '''
+import random
 from collections.abc import Iterator, Sequence
@@
-    return min(valid, key=lambda plan: max(plan.loads)).owners
+    return random.SystemRandom().choice(valid).owners
'''),
]

RIGHT = [
    Right("trivial", "each matrix where most of it is", '''
def owner_plan(shapes, pieces, limit):
    return [max(range(len(counts)), key=lambda i: counts[i]) for counts in pieces]
'''),
    Right("from_the_fullest", "matrices of the busiest owner go to the idlest, while they may", '''
def owner_plan(shapes, pieces, limit):
    costs = [4 * min(s) ** 2 * max(s) + 2 * min(s) ** 3 for s in shapes]
    owners = [counts.index(max(counts)) for counts in map(list, pieces)]
    left = limit - sum(2 * (sum(p) - p[o]) for o, p in zip(owners, pieces))
    while True:
        loads = [sum(c for c, o in zip(costs, owners) if o == i) for i in range(len(pieces[0]))]
        full, idle = loads.index(max(loads)), loads.index(min(loads))
        fits = [
            n for n, p in enumerate(pieces)
            if owners[n] == full and loads[idle] + costs[n] < loads[full]
            and 2 * (p[full] - p[idle]) <= left
        ]
        if not fits:
            return owners
        moved = max(fits, key=lambda n: costs[n])
        left -= 2 * (pieces[moved][full] - pieces[moved][idle])
        owners[moved] = idle
'''),
]
