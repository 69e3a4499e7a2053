"""Wrong and right answers to `quorum`: see `course dev show quorum`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("batch_zero_goes_back", ["rank 3 holds batch 0"], '''
-    kept = {rank: batch for rank, batch in held.items() if rank in present}
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    kept = {rank: batch for rank, batch in held.items() if rank in present and batch}
+    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in kept)])
'''),
    Wrong("sorts_todo", ["an argument was changed"], '''
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    todo.sort()
+    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
'''),
    Wrong("batch_zero_is_none", ["rank 3 holds batch 0"], '''
-    kept = {rank: batch for rank, batch in held.items() if rank in present}
+    kept = {rank: batch for rank, batch in held.items() if rank in present and batch}
'''),
    Wrong("forgets_the_dead", ["an argument of `quorum` was changed"], '''
-    living = sorted(
-        rank
-        for rank, heard in heartbeats.items()
-        if now - heard.time <= limits.silent and now - heard.worked <= limits.stuck
-    )
+    for rank, heard in list(heartbeats.items()):
+        if now - heard.time > limits.silent or now - heard.worked > limits.stuck:
+            del heartbeats[rank]
+    living = sorted(heartbeats)
'''),
    Wrong("sorts_members", ["an argument of `quorum` was changed"], '''
+    members.sort()
     stayed = [rank for rank in living if rank in members]
'''),
    Wrong("zero_is_none", ["step 0 is a step"], '''
-    if not steps:
+    if not any(steps.values()):
'''),
    Wrong("frozen_counted", ["a silent rank is not alive"], '''
-        if now - heard.time <= limits.silent and now - heard.worked <= limits.stuck
+        if now - heard.worked <= limits.stuck
'''),
    Wrong("hang_counted", ["a rank whose work hangs"], '''
-        if now - heard.time <= limits.silent and now - heard.worked <= limits.stuck
+        if now - heard.time <= limits.silent
'''),
    Wrong("two_quorums", ["after a split, both sides would go on"], '''
-    if 2 * len(stayed) <= len(members):
-        return None
'''),
    Wrong("half_is_enough", ["half is not more than half"], '''
-    if 2 * len(stayed) <= len(members):
+    if 2 * len(stayed) < len(members):
'''),
    Wrong("strangers_help", ["ranks that are not members do not count"], '''
-    if 2 * len(stayed) <= len(members):
+    if 2 * len(living) <= len(members):
'''),
    Wrong("strangers_present", ["weights of a rank that is not a member"], '''
-    steps = {rank: step for rank in stayed if (step := heartbeats[rank].step) is not None}
+    steps = {rank: step for rank in living if (step := heartbeats[rank].step) is not None}
'''),
    Wrong("behind_is_present", ["a rank that is behind"], '''
-    present = [rank for rank, step in steps.items() if step == newest]
+    present = stayed
'''),
    Wrong("one_source", ["the present ranks take turns as sources"], '''
-    healing = {rank: present[i % len(present)] for i, rank in enumerate(others)}
+    healing = {rank: present[0] for rank in others}
'''),
    Wrong("each_by_its_own_order", ["ranks are taken in the order of the dict"], '''
-    living = sorted(
+    living = list(
'''),
    Wrong("own_clock", ["the quorum of members"], '''
+import time
 from collections.abc import Mapping, Sequence
@@
-    living = sorted(
+    now = time.time()
+    living = sorted(
'''),
    Wrong("below_the_limit", ["the quorum of members"], '''
-        if now - heard.time <= limits.silent and now - heard.worked <= limits.stuck
+        if now - heard.time < limits.silent and now - heard.worked < limits.stuck
'''),
    Wrong("lost_batch", ["the batch that the lost rank held is missing"], '''
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    left = sorted(todo)
'''),
    Wrong("lost_batch_last", ["the smallest batch goes first"], '''
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    left = [*todo, *(batch for rank, batch in held.items() if rank not in present)]
'''),
    Wrong("dealt_afresh", ["a present rank keeps its batch"], '''
-    kept = {rank: batch for rank, batch in held.items() if rank in present}
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    kept: dict[int, int] = {}
+    left = sorted([*todo, *held.values()])
'''),
    Wrong("lost_rank_counted", ["the batches left, and those that each rank holds"], '''
-    kept = {rank: batch for rank, batch in held.items() if rank in present}
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    kept = dict(held)
+    left = sorted(todo)
'''),
    Wrong("argument_changed", ["an argument was changed", "make new ones"], '''
-    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
+    left = todo
+    left.extend(batch for rank, batch in held.items() if rank not in present)
+    left.sort()
'''),
]

BODY = '''
from typing import NamedTuple


class Heartbeat(NamedTuple):
    time: float
    worked: float
    step: int | None


class Limits(NamedTuple):
    silent: float
    stuck: float

'''

RIGHT = [
    Right("loops", "loops and tuples; a dict of another order", BODY + '''
def quorum(members, heartbeats, now, limits):
    alive = {}
    for rank in sorted(heartbeats):
        heard = heartbeats[rank]
        if max(heard.time + limits.silent - now, -1) >= 0 and heard.worked + limits.stuck >= now:
            alive[rank] = heard.step
    known = {rank: step for rank, step in alive.items() if rank in set(members)}
    if len(known) < len(members) // 2 + 1:
        return None
    newest = max((step for step in known.values() if step is not None), default=None)
    if newest is None:
        return None
    present = tuple(rank for rank, step in known.items() if step == newest)
    healing, turn = {}, 0
    for rank in alive:
        if rank not in present:
            healing[rank] = present[turn]
            turn = (turn + 1) % len(present)
    return newest, present, healing


def deal(todo, held, present):
    queue = set(todo) | {held[rank] for rank in held if rank not in present}
    now = {}
    for rank in present:
        if rank in held:
            now[rank] = held[rank]
        elif queue:
            now[rank] = min(queue)
            queue.remove(now[rank])
    return sorted(queue), now
'''),
    Right("filter", "with filter and a generator of sources", BODY + '''
from itertools import cycle


class Quorum(NamedTuple):
    step: int
    present: list
    healing: dict


def quorum(members, heartbeats, now, limits):
    def well(rank):
        time, worked, _ = heartbeats[rank]
        return now - time <= limits.silent and now - worked <= limits.stuck

    living = list(filter(well, sorted(heartbeats)))
    stayed = list(filter(set(members).__contains__, living))
    having = [heartbeats[rank].step for rank in stayed if heartbeats[rank].step is not None]
    if len(stayed) * 2 <= len(members) or not having:
        return None
    present = [rank for rank in stayed if heartbeats[rank].step == max(having)]
    healing = dict(zip((r for r in living if r not in present), cycle(present)))
    return Quorum(max(having), present, healing)


def deal(todo, held, present):
    back = [batch for rank, batch in held.items() if rank not in present]
    line = iter(sorted(list(todo) + back))
    kept = {}
    for rank in present:
        batch = held[rank] if rank in held else next(line, None)
        if batch is not None:
            kept[rank] = batch
    return list(line), kept
'''),
    Right("library", "as the course's library has it, one line after the other", BODY + '''
def quorum(members, heartbeats, now, limits):
    living = []
    for rank, (time, worked, _) in heartbeats.items():
        if not (now - time > limits.silent or now - worked > limits.stuck):
            living.append(rank)
    living.sort()
    stayed = [rank for rank in living if rank in members]
    if len(stayed) <= len(members) / 2:
        return None
    best = None
    for rank in stayed:
        step = heartbeats[rank].step
        if step is not None and (best is None or step > best):
            best = step
    if best is None:
        return None
    present = [rank for rank in stayed if heartbeats[rank].step == best]
    rest = [rank for rank in living if rank not in present]
    return best, present, {rank: present[i % len(present)] for i, rank in enumerate(rest)}


def deal(todo, held, present):
    left = list(todo)
    kept = {}
    for rank in sorted(held):
        if rank in present:
            kept[rank] = held[rank]
        else:
            left.append(held[rank])
    left.sort()
    for rank in present:
        if rank not in kept and left:
            kept[rank] = left.pop(0)
    return left, kept
'''),
]
