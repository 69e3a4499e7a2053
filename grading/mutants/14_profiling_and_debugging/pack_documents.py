"""Wrong and right answers to `pack_documents`: see `course dev show pack_documents`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("cuts_what_is_left", ["tokens in row 0 is too large"], '''
-                if tokens + lengths[number] <= room:
+                if tokens < room:
'''),
    Wrong("drops_the_short", ["is in 0 rows"], '''
-    return sorted(range(len(lengths)), key=lambda number: -lengths[number])
+    return sorted(range(len(lengths)), key=lambda number: -lengths[number])[: len(lengths) - 1]
'''),
    Wrong("fills_with_copies", ["is in 2 rows"], '''
-    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    rows = min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    shortest = min(range(len(lengths)), key=lambda number: lengths[number])
+    for documents in rows:
+        if sum(lengths[number] for number in documents) + lengths[shortest] <= row:
+            documents.append(shortest)
+    return rows
'''),
    Wrong("empty_rows", ["is empty"], '''
-    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    return [*min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len), []]
'''),
    Wrong("lengths_for_numbers", ["there is no document"], '''
-    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    rows = min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    return [[lengths[number] for number in documents] for documents in rows]
'''),
    Wrong("another_on_every_rank", ["two ranks that get the same case"], '''
+import random
 from collections.abc import Sequence
@@
-    return min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    rows = min(_best_fit(lengths, row), _fullest_rows(lengths, row), key=len)
+    random.SystemRandom().shuffle(rows)
+    return rows
'''),
]

RIGHT = [
    Right("trivial", "next fit: in their order, and a new row when one does not fit", '''
def pack_documents(lengths, row):
    rows, room = [[]], row
    for number, length in enumerate(lengths):
        if length > room:
            rows.append([])
            room = row
        rows[-1].append(number)
        room -= length
    return rows
'''),
    Right("first_fit", "longest first into the first row with room; tuples", '''
def pack_documents(lengths, row):
    rows, room = [], []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        for place in range(len(rows)):
            if room[place] >= lengths[number]:
                break
        else:
            place = len(rows)
            rows.append(())
            room.append(row)
        rows[place] += (number,)
        room[place] -= lengths[number]
    return rows
'''),
]
