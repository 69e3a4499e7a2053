"""Wrong and right answers to `prefetch`: see `course dev show prefetch`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("never_all_at_once", ["must be in flight as well"], '''
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
+        wanted = list(dict.fromkeys(order[place:]))[: min(limit, max(1, len(order) - 1))]
'''),
    Wrong("counts_places", ["must be in flight as well"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
+        wanted = list(dict.fromkeys(order[place : place + limit]))
'''),
    Wrong("everything_at_the_start", ["everything is in flight at once"], '''
-    flight: list[AnyUnit] = []
-    for place, unit in enumerate(order):
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
-        for old in flight:
-            if old not in wanted:
-                old.free()
-        for new in wanted:
-            if new not in flight:
-                new.launch()
-        flight = wanted  # mutate: same
+    units = list(dict.fromkeys(order))
+    for unit in units:
+        unit.launch()
+    for unit in order:
@@
-    for last in flight:
-        last.free()
+    for unit in units:
+        unit.free()
'''),
    Wrong("frees_before_the_computation", ["computes while not in flight"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
         unit.wait()
+        unit.free()
@@
         yield unit
+        flight = [other for other in flight if other is not unit]
'''),
    Wrong("frees_when_the_caller_comes_back", ["a unit that was whole is freed and gathered again"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
         yield unit
+        unit.free()
+        flight = [other for other in flight if other is not unit]
'''),
    Wrong("gathers_again", ["freed and gathered again: keep what is wanted next", "must be in flight as well"], '''
-    flight: list[AnyUnit] = []
@@
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
-        for old in flight:
-            if old not in wanted:
-                old.free()
-        for new in wanted:
-            if new not in flight:
-                new.launch()
-        flight = wanted  # mutate: same
+        if place == 0:
+            unit.launch()
@@
         unit.wait()
+        following = order[place + 1] if place + 1 < len(order) else None
+        ahead = following is not None and following is not unit and limit > 1
+        if ahead:
+            following.launch()
@@
-    for last in flight:
-        last.free()
+        unit.free()
+        if following is not None and not ahead:
+            following.launch()
'''),
    Wrong("gathers_when_needed", ["must be in flight as well", "it must be launched before the unit is yielded"], '''
-    flight: list[AnyUnit] = []
-    for place, unit in enumerate(order):
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
-        for old in flight:
-            if old not in wanted:
-                old.free()
-        for new in wanted:
-            if new not in flight:
-                new.launch()
-        flight = wanted  # mutate: same
+    for unit in order:
+        unit.launch()
@@
-    for last in flight:
-        last.free()
+        unit.free()
'''),
    Wrong("keeps_what_comes_after_the_next", ["unit a is launched, but it is in flight already"], '''
         for old in flight:
-            if old not in wanted:
+            if old not in (wanted if limit > 1 else order[place : place + 2]):
'''),
    Wrong("last_one_stays", ["what is in flight in the end"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-    for last in flight:
-        last.free()
'''),
    Wrong("latest_first", ["the launches"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        for new in wanted:
+        for new in reversed(wanted):
'''),
    Wrong("launches_before_it_frees", ["it is launched before another is freed: free first"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
         wanted = list(dict.fromkeys(order[place:]))[:limit]
+        for new in wanted:
+            if new not in flight:
+                new.launch()
@@
-        for new in wanted:
-            if new not in flight:
-                new.launch()
'''),
    Wrong("launches_twice", ["it is in flight already"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-            if new not in flight:
-                new.launch()
+            new.launch()
'''),
    Wrong("limit_is_two", ["b must not be in flight", "`limit` is the maximum"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
+        wanted = list(dict.fromkeys(order[place:]))[:2]
'''),
    Wrong("looks_up_the_place", ["must be in flight as well"], '''
-    flight: list[AnyUnit] = []
-    for place, unit in enumerate(order):
+    flight = []
+    for unit in order:
+        place = list(order).index(unit)
'''),
    Wrong("never_freed", ["the number of units in flight", "is too large", "everything is in flight at once"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        for old in flight:
-            if old not in wanted:
-                old.free()
@@
-        flight = wanted  # mutate: same
+        flight += [new for new in wanted if new not in flight]
'''),
    Wrong("never_waits", ["computes while not waited for", "call `wait` before you yield"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        unit.wait()
'''),
    Wrong("one_too_many", ["must not be in flight", "the number of units in flight"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        wanted = list(dict.fromkeys(order[place:]))[:limit]
+        wanted = list(dict.fromkeys(order[place:]))[: limit + 1]
'''),
    Wrong("returns_a_list", ["computes while not in flight", "write a generator"], '''
-    flight: list[AnyUnit] = []
+    flight, done = [], []
@@
-        yield unit
+        done.append(unit)
@@
         last.free()
+    return done
'''),
    Wrong("skips_the_repetition", ["the order of computing"], '''
-    flight: list[AnyUnit] = []
+    flight = []
+    order = list(dict.fromkeys(order))
'''),
    Wrong("waits_after_the_yield", ["computes while not waited for"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
         flight = wanted  # mutate: same
+        yield unit
@@
-        yield unit
'''),
    Wrong("waits_at_once", ["a unit is waited for before its turn"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
                 new.launch()
+                new.wait()
'''),
    Wrong("yields_names", ["prefetch yields the units themselves"], '''
-    flight: list[AnyUnit] = []
+    flight = []
@@
-        yield unit
+        yield place, unit
'''),
]

RIGHT = [
    Right("variant_class", "an iterator class; waits again for what is there", '''
class prefetch:
    def __init__(self, order, limit):
        self.order, self.limit, self.place, self.flight = list(order), limit, 0, set()

    def __iter__(self):
        return self

    def __next__(self):
        wanted = list(dict.fromkeys(self.order[self.place :]))[: self.limit]
        for old in self.flight - set(wanted):
            old.free()
        for new in wanted:
            if new not in self.flight:
                new.launch()
        self.flight = set(wanted)
        if not wanted:
            raise StopIteration
        self.place += 1
        wanted[0].wait()
        wanted[0].wait()
        return wanted[0]
'''),
    Right("variant_frees_after_computing", "the next gathers are launched as soon as a unit has computed", '''
def window(units, limit):
    found = []
    for unit in units:
        if unit not in found:
            found.append(unit)
    return found[:limit]


def prefetch(order, limit):
    flight = window(order, limit)
    for unit in flight:
        unit.launch()
    for place, unit in enumerate(order):
        unit.wait()
        yield unit
        coming = window(order[place + 1 :], limit)
        if unit not in coming:
            unit.free()
        for new in coming:
            if new not in flight:
                new.launch()
        flight = coming
'''),
    Right("variant_pointer", "launches one after the other, from a pointer into the order", '''
def prefetch(order, limit):
    flight, ahead = [], 0
    for place, unit in enumerate(order):
        soon = []
        for other in order[place:]:
            if other not in soon and len(soon) < limit:
                soon.append(other)
        for other in [u for u in flight if u not in soon]:
            flight.remove(other)
            other.free()
        ahead = max(ahead, place)
        while ahead < len(order) and (order[ahead] in flight or len(flight) < limit):
            if order[ahead] not in flight:
                flight.append(order[ahead])
                order[ahead].launch()
            ahead += 1
        unit.wait()
        yield unit
    while flight:
        flight.pop().free()
'''),
]
