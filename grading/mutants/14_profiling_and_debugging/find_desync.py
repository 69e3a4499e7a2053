"""Wrong and right answers to `find_desync`: see `course dev show find_desync`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_features_at_once", ["the difference in the call", "is not what it should be"], '''
-            sides.setdefault(made[rank][kind], []).append(rank)
+            sides.setdefault(tuple(made[rank][each] for each in ("op", "dtype", "shape")), []).append(rank)
'''),
    Wrong("waits_in_the_last_only", ["who never comes"], '''
-            still = [record for record in log["records"] if record["state"] == "waiting"]
+            still = [record for record in log["records"][-1:] if record["state"] == "waiting"]
'''),
    Wrong("in_the_order_of_the_group", ["in ascending order"], '''
-            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
+            named = tuple(rank for rank in group if rank in gone)
+            faults.append((sort, begin, Finding("missing", group, seq, named)))
'''),
    Wrong("logs_sorted_in_place", ["the logs were changed"], '''
     calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
+    logs.sort(key=lambda log: log["rank"])
'''),
    Wrong("plain_tuple", ["no Finding"], '''
-    return min(faults)[2] if faults else None
+    return tuple(min(faults)[2]) if faults else None
'''),
    Wrong("lowest_is_on_a_large_side", ["the difference in the call"], '''
-            usual = max(sides.values(), key=len)  # the first of the largest: with the lowest rank
+            most = max(map(len, sides.values()))
+            first = next(iter(sides.values()))
+            large = [side for side in sides.values() if len(side) == most]
+            usual = large[0] if len(large) == 1 else first
'''),
    Wrong("all_named", ["all ranks of the call are named"], '''
-            return kind, tuple(sorted(made.keys() - set(usual)))
+            return kind, tuple(sorted(made))
'''),
    Wrong("all_ranks_are_asked", ["who lacks call"], '''
-        if log["rank"] in group and log["made"].get(group, 0) <= seq  # mutate: same
+        if log["made"].get(group, 0) <= seq
'''),
    Wrong("any_group", ["calls of different groups are compared"], '''
-    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
+    calls: dict[int, dict[int, Record]] = {}
@@
-            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
+            calls.setdefault(record["seq"], {})[log["rank"]] = record
@@
-    for (group, seq), made in calls.items():
+    for seq, made in calls.items():
+        group = made[min(made)]["group"]
'''),
    Wrong("begin_of_the_last", ["the finding for logs", "is not what it should be"], '''
-        begin, late = min(r["begin"] for r in made.values()), lacking(group, seq, logs)
+        begin, late = max(r["begin"] for r in made.values()), lacking(group, seq, logs)
'''),
    Wrong("elements_counted", ["shapes with as many elements can differ"], '''
 from typing import Any, NamedTuple
+import math
@@
-            sides.setdefault(made[rank][kind], []).append(rank)
+            sides.setdefault(math.prod(made[rank][kind]) if kind == "shape" else made[rank][kind], []).append(rank)
'''),
    Wrong("endless", ["last seen in line"], '''
-        never -= free
+        free = never - free
'''),
    Wrong("finished_may_come", ["a program that has finished makes no more calls"], '''
-        if log["state"] == "running":
+        if log["state"] in ("running", "finished"):
@@
-    ended = {log["rank"] for log in logs if log["state"] != "running"}  # mutate: same
+    ended = {log["rank"] for log in logs if log["state"] not in ("running", "finished")}
'''),
    Wrong("first_group_only", ["the finding for logs", "is not what it should be"], '''
-            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
+            if len(record["group"]) == len(logs):
+                calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
'''),
    Wrong("first_in_the_log", ["the finding for logs", "is not what it should be"], '''
-    return min(faults)[2] if faults else None
+    return min(faults, key=lambda fault: fault[0])[2] if faults else None
'''),
    Wrong("gone_is_missing", ["what is gone from the log was made"], '''
-        if log["rank"] in group and log["made"].get(group, 0) <= seq  # mutate: same
+        if log["rank"] in group and all(r["group"] != group or r["seq"] < seq for r in log["records"])
'''),
    Wrong("last_fault", ["this is the last fault", "not the first"], '''
-    return min(faults)[2] if faults else None
+    return max(faults)[2] if faults else None
'''),
    Wrong("list_positions", ["logs are ring buffers"], '''
-    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
+    calls: dict[int, dict[int, Record]] = {}
@@
-        for record in log["records"]:
-            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
+        for place, record in enumerate(log["records"]):
+            calls.setdefault(place, {})[log["rank"]] = record
@@
-    for (group, seq), made in calls.items():
+    for made in calls.values():
+        some = made[min(made)]
+        group, seq = some["group"], some["seq"]
'''),
    Wrong("log_order", ["the finding for logs", "is not what it should be"], '''
     calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
-    for log in logs:  # mutate: same
+    for rank, log in enumerate(logs):
@@
-            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
+            calls.setdefault((record["group"], record["seq"]), {})[rank] = record
'''),
    Wrong("lowest_is_right", ["the lowest rank is taken for right"], '''
-            usual = max(sides.values(), key=len)  # the first of the largest: with the lowest rank
+            usual = next(iter(sides.values()))
'''),
    Wrong("majority_named", ["these ranks did what most did"], '''
-            return kind, tuple(sorted(made.keys() - set(usual)))
+            return kind, tuple(sorted(usual))
'''),
    Wrong("no_circles", ["ranks that wait for each other in a circle never go on"], '''
-    while free := {rank for rank in never & waits_for.keys() if not waits_for[rank] & never}:
-        never -= free
-    return never
+    return never - waits_for.keys()
'''),
    Wrong("no_dtype", ["dtypes are not compared"], '''
-    for kind in ("op", "dtype", "shape"):
+    for kind in ("op", "shape"):
'''),
    Wrong("no_shape", ["shapes are not compared"], '''
-    for kind in ("op", "dtype", "shape"):
+    for kind in ("op", "dtype"):
'''),
    Wrong("nothing_missing", ["the finding for logs", "missing"], '''
-        elif gone := late & ended or late & never:
+        elif gone := set[int]():
'''),
    Wrong("one_link", ["who never comes", "is not what it should be"], '''
-    while free := {rank for rank in never & waits_for.keys() if not waits_for[rank] & never}:
-        never -= free
-    return never
+    at_work = {rank for rank, late in waits_for.items() if not late}
+    return never - {rank for rank, late in waits_for.items() if late <= at_work}
'''),
    Wrong("one_list_of_faults", ["a call that ranks made differently comes before one that is missing"], '''
-            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
+            faults.append((1, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
'''),
    Wrong("one_off", ["who lacks call"], '''
-        if log["rank"] in group and log["made"].get(group, 0) <= seq  # mutate: same
+        if log["rank"] in group and log["made"].get(group, 0) < seq
'''),
    Wrong("only_raised_ended", ["only one that raised is taken for ended"], '''
-        if log["state"] == "running":
+        if log["state"] != "raised":
@@
-    ended = {log["rank"] for log in logs if log["state"] != "running"}  # mutate: same
+    ended = {log["rank"] for log in logs if log["state"] == "raised"}
'''),
    Wrong("order_of_the_dict", ["the difference in the call", "is not what it should be"], '''
-        for rank in sorted(made):
+        for rank in made:
'''),
    Wrong("positions_from_the_end", ["the finding for logs", "is not what it should be"], '''
-    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
+    calls: dict[int, dict[int, Record]] = {}
@@
-        for record in log["records"]:
-            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
+        for place, record in enumerate(reversed(log["records"])):
+            calls.setdefault(place, {})[log["rank"]] = record
@@
-    for (group, seq), made in calls.items():
+    for made in calls.values():
+        some = made[min(made)]
+        group, seq = some["group"], some["seq"]
'''),
    Wrong("shape_first", ["the dtype comes before the shape"], '''
-    for kind in ("op", "dtype", "shape"):
+    for kind in ("op", "shape", "dtype"):
'''),
    Wrong("slow_is_faulty", ["a rank that is slow is no fault"], '''
-    while free := {rank for rank in never & waits_for.keys() if not waits_for[rank] & never}:
-        never -= free
'''),
    Wrong("slow_ones_named_too", ["the finding for logs", "is not what it should be"], '''
-            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
+            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(late)))))
'''),
    Wrong("smallest_number", ["numbers of different groups cannot be compared"], '''
-            faults.append((1, begin, Finding(odd[0], group, seq, odd[1])))  # mutate: same
+            faults.append((1, seq, Finding(odd[0], group, seq, odd[1])))
@@
-            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
+            faults.append((sort, seq, Finding("missing", group, seq, tuple(sorted(gone)))))
'''),
    Wrong("smallest_side_only", ["the difference in the call", "is not what it should be"], '''
-            return kind, tuple(sorted(made.keys() - set(usual)))
+            return kind, tuple(min(reversed(list(sides.values())), key=len))
'''),
    Wrong("tie_to_the_highest", ["the difference in the call", "is not what it should be"], '''
-            usual = max(sides.values(), key=len)  # the first of the largest: with the lowest rank
+            usual = max(reversed(list(sides.values())), key=len)
'''),
    Wrong("two_ranks", ["only two ranks are compared"], '''
-        for rank in sorted(made):
+        for rank in sorted(made)[:2]:
@@
-            return kind, tuple(sorted(made.keys() - set(usual)))
+            return kind, tuple(sorted({rank for ranks in sides.values() for rank in ranks} - set(usual)))
'''),
    Wrong("under_way_is_still", ["a program does not stand still in a call that is under way"], '''
-            still = [record for record in log["records"] if record["state"] == "waiting"]
+            still = [record for record in log["records"] if record["state"] != "finished"]
'''),
    Wrong("unsorted_ranks", ["give the ranks as a tuple", "in ascending order"], '''
-            return kind, tuple(sorted(made.keys() - set(usual)))
+            return kind, tuple(sorted(made.keys() - set(usual), reverse=True))
'''),
    Wrong("victims_named", ["who waits is a victim of the one that ended"], '''
-        elif gone := late & ended or late & never:
-            sort = 2 if late & ended else 3  # mutate: same
+        elif gone := late & never:
+            sort = 2
'''),
    Wrong("who_waits_never_goes_on", ["a rank that waits for one that can come will go on"], '''
-    while free := {rank for rank in never & waits_for.keys() if not waits_for[rank] & never}:
-        never -= free
-    return never
+    return never - {rank for rank, late in waits_for.items() if not late}
'''),
]

RIGHT = [
    Right("variant_add_the_going", "the ranks that can go on are gathered, not taken out", '''
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Log = Mapping[str, Any]
Record = Mapping[str, Any]


class Finding(NamedTuple):
    """What is wrong."""

    kind: str
    group: tuple[int, ...]
    seq: int
    ranks: tuple[int, ...]


def difference(made: Mapping[int, Record]) -> tuple[str, tuple[int, ...]] | None:
    """What differs in one call."""
    for kind in ("op", "dtype", "shape"):
        sides: dict[Any, list[int]] = {}
        for rank in sorted(made):
            sides.setdefault(made[rank][kind], []).append(rank)
        if len(sides) > 1:
            usual = max(sides.values(), key=len)
            return kind, tuple(sorted(made.keys() - set(usual)))
    return None


def lacking(group: tuple[int, ...], seq: int, logs: Sequence[Log]) -> set[int]:
    """The ranks of the group that have not begun its call number `seq`."""
    return {
        log["rank"]
        for log in logs
        if log["rank"] in group and log["made"].get(group, 0) <= seq
    }


def never_coming(logs: Sequence[Log]) -> set[int]:
    """The ranks that never make another call."""
    waits_for = {}
    for log in logs:
        if log["state"] == "running":
            still = [record for record in log["records"] if record["state"] == "waiting"]
            late = [lacking(record["group"], record["seq"], logs) for record in still]
            waits_for[log["rank"]] = set().union(*late)
    going: set[int] = set()
    for _ in logs:
        going |= {rank for rank, late in waits_for.items() if late <= going}
    return {log["rank"] for log in logs} - going


def find_desync(logs: Sequence[Log]) -> Finding | None:
    """The first fault; None if all calls agree and every rank can go on or has done its part."""
    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
    for log in logs:
        for record in log["records"]:
            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
    ended = {log["rank"] for log in logs if log["state"] != "running"}
    never, faults = never_coming(logs), []
    for (group, seq), made in calls.items():
        begin, late = min(r["begin"] for r in made.values()), lacking(group, seq, logs)
        if odd := difference(made):
            faults.append((1, begin, Finding(odd[0], group, seq, odd[1])))
        elif gone := late & ended or late & never:
            sort = 2 if late & ended else 3
            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
    return min(faults)[2] if faults else None
'''),
    Right("variant_graph", "the ends and circles are searched along the edges of who waits for whom", '''
from collections import Counter, namedtuple

Finding = namedtuple("Finding", "kind group seq ranks")


def difference(made):
    """What differs in one call."""
    for kind in ("op", "dtype", "shape"):
        votes = Counter(record[kind] for record in made.values())
        if len(votes) == 1:
            continue
        most = max(votes.values())
        usual = made[min(rank for rank in made if votes[made[rank][kind]] == most)][kind]
        return kind, tuple(rank for rank in sorted(made) if made[rank][kind] != usual)


def lacking(group, seq, logs):
    """Who has not begun a call."""
    begun = {log["rank"]: log["made"].get(group, 0) for log in logs}
    return {rank for rank in group if begun[rank] < seq + 1}


def never_coming(logs):
    """From those that ended, and from each rank that can reach itself, backwards."""
    edges = {log["rank"]: set() for log in logs}
    for log in logs:
        if log["state"] == "running":
            for record in log["records"]:
                if record["state"] == "waiting":
                    edges[log["rank"]] |= lacking(record["group"], record["seq"], logs)

    def reach(rank):
        seen, todo = set(), list(edges[rank])
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += edges[at]
        return seen

    roots = {log["rank"] for log in logs if log["state"] != "running"}
    roots |= {rank for rank in edges if rank in reach(rank)}
    return roots | {rank for rank in edges if reach(rank) & roots}


def find_desync(logs):
    """Three passes, one for each sort."""
    records = sorted((r for log in logs for r in log["records"]), key=lambda r: r["begin"])
    order = list(dict.fromkeys((r["group"], r["seq"]) for r in records))
    for group, seq in order:
        made = {
            log["rank"]: r
            for log in logs
            for r in log["records"]
            if (r["group"], r["seq"]) == (group, seq)
        }
        found = difference(made)
        if found:
            return Finding(found[0], group, seq, found[1])
    ended = {log["rank"] for log in logs if log["state"] != "running"}
    for gone in (ended, never_coming(logs)):
        for group, seq in order:
            ranks = lacking(group, seq, logs) & gone
            if ranks:
                return Finding("missing", group, seq, tuple(sorted(ranks)))
    return None
'''),
    Right("variant_heads", "one sorted pass, a finding of each sort kept when it is the first", '''
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Log = Mapping[str, Any]
Record = Mapping[str, Any]


class Finding(NamedTuple):
    """What is wrong."""

    kind: str
    group: tuple[int, ...]
    seq: int
    ranks: tuple[int, ...]


def difference(made: Mapping[int, Record]) -> tuple[str, tuple[int, ...]] | None:
    """What differs in one call."""
    for kind in ("op", "dtype", "shape"):
        sides: dict[Any, list[int]] = {}
        for rank in sorted(made):
            sides.setdefault(made[rank][kind], []).append(rank)
        if len(sides) > 1:
            usual = max(sides.values(), key=len)
            return kind, tuple(sorted(made.keys() - set(usual)))
    return None


def lacking(group: tuple[int, ...], seq: int, logs: Sequence[Log]) -> set[int]:
    """The ranks of the group that have not begun its call number `seq`."""
    return {
        log["rank"]
        for log in logs
        if log["rank"] in group and log["made"].get(group, 0) <= seq
    }


def never_coming(logs: Sequence[Log]) -> set[int]:
    """The ranks that never make another call."""
    waits_for = {}
    for log in logs:
        if log["state"] == "running":
            still = [record for record in log["records"] if record["state"] == "waiting"]
            late = [lacking(record["group"], record["seq"], logs) for record in still]
            waits_for[log["rank"]] = set().union(*late)
    never = {log["rank"] for log in logs}
    while free := {rank for rank in never & waits_for.keys() if not waits_for[rank] & never}:
        never -= free
    return never


def find_desync(logs: Sequence[Log]) -> Finding | None:
    """The first fault; None if all calls agree and every rank can go on or has done its part."""
    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
    for log in logs:
        for record in log["records"]:
            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
    ended = {log["rank"] for log in logs if log["state"] != "running"}
    never, faults = never_coming(logs), []
    for (group, seq), made in calls.items():
        begin, late = min(r["begin"] for r in made.values()), lacking(group, seq, logs)
        if odd := difference(made):
            faults.append((1, begin, Finding(odd[0], group, seq, odd[1])))
        elif gone := late & ended or late & never:
            sort = 2 if late & ended else 3
            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
    faults.sort(key=lambda fault: fault[1])
    for sort in (1, 2, 3):
        for fault in faults:
            if fault[0] == sort:
                return fault[2]
    return None
'''),
]
