"""Wrong and right answers to `build_buckets`: see `course dev show build_buckets`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("closed_late", ["has grown over the cap"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) >= limit:
'''),
    Wrong("compares_values", ["ambiguous"], '''
     """
+    trained = []
+    for p in params:
+        if p.requires_grad and p not in trained:
+            trained.append(p)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("dtype_change_closes", ["is not what it should be"], '''
-    buckets: dict = {}  # for each dtype, its buckets so far
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
-        mine = buckets.setdefault(parameter.dtype, [[]])
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
-            mine.append([])
-        mine[-1].append(parameter)
-    return [bucket for mine in buckets.values() for bucket in mine]
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
+    buckets, started = [], set()
+    for parameter in reversed(trained):
+        last = buckets[-1] if buckets else None
+        limit = cap if parameter.dtype in started else first_cap
+        same = last and last[0].dtype == parameter.dtype
+        if not same or sum(p.nbytes for p in last) + parameter.nbytes > limit:
+            if last:
+                started.add(last[0].dtype)
+            buckets.append([])
+        buckets[-1].append(parameter)
+    return buckets
'''),
    Wrong("elements", ["bytes", "not elements"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.numel() for p in mine[-1]) + parameter.numel() > limit:
'''),
    Wrong("empty_bucket", ["an empty bucket"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("first_cap_always", ["is not what it should be"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("first_cap_of_all", ["not of the whole list"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 and len(buckets) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("flat_list", ["wrong form"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
@@
-    return [bucket for mine in buckets.values() for bucket in mine]
+    return [p for mine in buckets.values() for bucket in mine for p in bucket]
'''),
    Wrong("forward_order", ["forward order"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in trained:
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("four_bytes_each", ["is not what it should be"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and 4 * (sum(p.numel() for p in mine[-1]) + parameter.numel()) > limit:
'''),
    Wrong("frozen_too", ["a frozen parameter has no gradient"], '''
     """
+    trained = dict.fromkeys(p for p in params)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("large_one_goes_on", ["is not what it should be"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        held = sum(p.nbytes for p in mine[-1] if p.nbytes <= limit)  # a large one does not count
+        if mine[-1] and (held + parameter.nbytes > limit or parameter.nbytes > limit):
'''),
    Wrong("last_one_lost", ["lack parameters", "still open at the end"], '''
-    buckets: dict = {}  # for each dtype, its buckets so far
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
-        mine = buckets.setdefault(parameter.dtype, [[]])
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
-            mine.append([])
-        mine[-1].append(parameter)
-    return [bucket for mine in buckets.values() for bucket in mine]
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
+    closed, open_ones, started = [], {}, set()
+    for parameter in reversed(trained):
+        dtype = parameter.dtype
+        mine = open_ones.setdefault(dtype, [])
+        limit = cap if dtype in started else first_cap
+        if mine and sum(p.nbytes for p in mine) + parameter.nbytes > limit:
+            closed.append(mine)
+            started.add(dtype)
+            mine = open_ones[dtype] = []
+        mine.append(parameter)
+    return closed
'''),
    Wrong("mixed_dtypes", ["mix dtypes", "one flat tensor"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
-        mine = buckets.setdefault(parameter.dtype, [[]])
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+    for parameter in reversed(trained):
+        mine = buckets.setdefault(None, [[]])
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("needs_a_list", ["TypeError"], '''
     """
+    params = [params[i] for i in range(len(params))]
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("no_first_cap", ["first_cap was not used"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("own_order_on_each_rank", ["rank 1's list"], '''
 from torch.nn import Parameter
+import os
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
@@
-    return [bucket for mine in buckets.values() for bucket in mine]
+    dtypes = list(buckets)
+    if int(os.environ["RANK"]) % 2:  # as a set of strings may do
+        dtypes.reverse()
+    return [bucket for dtype in dtypes for bucket in buckets[dtype]]
'''),
    Wrong("sorted_by_size", ["is not what it should be"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in sorted(trained, key=lambda p: p.nbytes):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("splits_large_ones", ["something else than the parameters"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
-            mine.append([])
-        mine[-1].append(parameter)
+        for piece in parameter.flatten().split(max(1, cap // parameter.element_size())):
+            limit = first_cap if len(mine) == 1 else cap
+            if mine[-1] and sum(p.nbytes for p in mine[-1]) + piece.nbytes > limit:
+                mine.append([])
+            mine[-1].append(parameter if piece.numel() == parameter.numel() else piece)
'''),
    Wrong("strictly_below", ["exactly as large as the cap"], '''
     """
+    trained = dict.fromkeys(p for p in params if p.requires_grad)
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes >= limit:
'''),
    Wrong("tied_at_its_last_place", ["complete only after its first use"], '''
     """
+    trained = [p for p in params if p.requires_grad]
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in dict.fromkeys(trained[::-1]):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
    Wrong("tied_twice", ["a tied parameter is in two places"], '''
     """
+    trained = [p for p in params if p.requires_grad]
@@
-    for parameter in reversed(dict.fromkeys(p for p in params if p.requires_grad)):
+    for parameter in reversed(trained):
@@
-        held = sum(p.nbytes for p in mine[-1])
-        if held and held + parameter.nbytes > (first_cap if len(mine) == 1 else cap):
+        limit = first_cap if len(mine) == 1 else cap
+        if mine[-1] and sum(p.nbytes for p in mine[-1]) + parameter.nbytes > limit:
'''),
]

RIGHT = [
    Right("variant_by_the_last_gradient", "sorted by when their last gradient is ready, as tuples", '''
from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = list(dict.fromkeys(p for p in params if p.requires_grad))[::-1]
    when = {p: n for n, p in enumerate(trained)}

    def cut(members, limit):
        held = count = 0
        while count < len(members) and (count == 0 or held + members[count].nbytes <= limit):
            held += members[count].nbytes
            count += 1
        return [tuple(members[:count])] + (cut(members[count:], cap) if members[count:] else [])

    by_dtype = {}
    for p in trained:
        by_dtype.setdefault(p.dtype, []).append(p)
    found = [bucket for members in by_dtype.values() for bucket in cut(members, first_cap)]
    return sorted(found, key=lambda bucket: when[bucket[-1]])
'''),
    Right("variant_open_and_closed", "open buckets in a dict, closed ones in a list, in the order in which they close", '''
from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    trained = list(dict.fromkeys(p for p in params if p.requires_grad))
    closed, open_ones, started = [], {}, set()
    for parameter in trained[::-1]:
        dtype = parameter.dtype
        mine = open_ones.setdefault(dtype, [])
        limit = cap if dtype in started else first_cap
        if mine and sum(p.nbytes for p in mine) + parameter.nbytes > limit:
            closed.append(mine)
            started.add(dtype)
            mine = open_ones[dtype] = []
        mine.append(parameter)
    return closed + list(open_ones.values())
'''),
    Right("variant_sizes_beside", "one pass for each dtype, with a running total", '''
from torch.nn import Parameter


def build_buckets(params, cap: int, first_cap: int) -> list[list[Parameter]]:
    seen, trained = set(), []
    for p in params:
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            trained.insert(0, p)
    buckets = []
    for dtype in dict.fromkeys(p.dtype for p in trained):
        room, first = -1, True
        for p in (p for p in trained if p.dtype == dtype):
            if first or p.nbytes > room:
                room = first_cap if first else cap
                buckets.append([])
                first = False
            buckets[-1].append(p)
            room -= p.nbytes
    return buckets
'''),
]
