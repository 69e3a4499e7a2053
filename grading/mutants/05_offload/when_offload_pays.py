"""Wrong and right answers to `when_offload_pays`: see `course dev show when_offload_pays`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_in_a_row", ["everything is added up"], '''
-    after = max(parameters / update, way)
+    after = parameters / update + way
@@
-        after = max(after, 12 * parameters / read + 12 * parameters / write)
-    return forward + max(backward, way) + after
+        after = after + 12 * parameters / read + 12 * parameters / write
+    return forward + backward + way + after
'''),
    Wrong("bits", ["in bytes, not in bits"], '''
-    way = 2 * parameters / link
+    way = 16 * parameters / link
'''),
    Wrong("down_during_forward", ["cannot go down during forward"], '''
-    return forward + max(backward, way) + after
+    return max(forward + backward, way) + after
'''),
    Wrong("never_one_token", ["are too many"], '''
-    high = 1
+    high = 2
'''),
    Wrong("never_written", ["must also be written"], '''
-        after = max(after, 12 * parameters / read + 12 * parameters / write)
+        after = max(after, 12 * parameters / read)
'''),
    Wrong("powers_of_two", ["too many", "search below it"], '''
         high *= 2
+    return high
'''),
    Wrong("reads_and_writes_at_once", ["reads or writes"], '''
-        after = max(after, 12 * parameters / read + 12 * parameters / write)
+        after = max(after, 12 * parameters / min(read, write))
'''),
    Wrong("more_than_the_share", ["49,153 are too many", "just reached is enough"], '''
-        low, high = (low, middle) if share(middle) >= efficiency else (middle, high)
+        low, high = (low, middle) if share(middle) > efficiency else (middle, high)
'''),
    Wrong("rounds_down", ["too few"], '''
-    return high
+    return max(1, high - 1)
'''),
    Wrong("up_then_update", ["run at the same time"], '''
-    after = max(parameters / update, way)
+    after = parameters / update + way
'''),
    Wrong("way_up_forgotten", ["must also be copied up"], '''
-    after = max(parameters / update, way)
+    after = parameters / update
'''),
]

RIGHT = [
    Right("variant_closed_form", "solved for the tokens", '''
from math import ceil


def step_seconds(
    parameters: float,
    tokens: float,
    where: str,
    *,
    flops: float,
    link: float,
    update: float,
    read: float,
    write: float,
) -> float:
    forward, backward = 2 * parameters * tokens / flops, 4 * parameters * tokens / flops
    if where == "device":
        return forward + backward
    way = 2 * parameters / link
    after = max(parameters / update, way)
    if where == "disk":
        after = max(after, 12 * parameters / read + 12 * parameters / write)
    return forward + max(backward, way) + after


def tokens_for(efficiency: float, parameters: float, where: str, **machine: float) -> int:
    per_token = 6 * parameters / machine["flops"]
    way = 2 * parameters / machine["link"]
    forward, backward = per_token / 3, per_token * 2 / 3
    after = step_seconds(parameters, 0, where, **machine) - way
    short = efficiency * (way + after) / (per_token - efficiency * forward)
    long = efficiency * after / (per_token * (1 - efficiency))
    tokens = max(1, ceil(short if short * backward < way else long) - 2)
    while per_token * tokens < efficiency * step_seconds(parameters, tokens, where, **machine):
        tokens += 1
    return tokens
'''),
]
