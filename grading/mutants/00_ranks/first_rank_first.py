"""Wrong and right answers to `first_rank_first`: see `course dev show first_rank_first`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("others_raise_as_well", ["they call `prepare` as always"], '''
 from course_lib.comm import Group, barrier
+import torch
+from course_lib.comm import broadcast
@@
+    went_well = torch.zeros(1)
     if group.index != 0:
-        barrier(group)
+        broadcast(went_well, 0, group)
+        if not went_well:
+            raise RuntimeError("the first rank could not prepare the data")
         return prepare()
     try:
-        return prepare()
+        value = prepare()
+        went_well += 1
+        return value
     finally:  # also when it raises: the others are waiting
-        barrier(group)
+        broadcast(went_well, 0, group)
'''),
    Wrong("swallows_on_the_others", ["it was swallowed", "on rank 1"], '''
         barrier(group)
-        return prepare()
+        try:
+            return prepare()
+        except Exception:
+            return None
'''),
    Wrong("lowest_rank_first", ["prepare began before rank 3 had finished"], '''
-    if group.index != 0:
+    if group.rank != min(group.ranks):
'''),
    Wrong("releases_after_exceptions_alone", ["nobody waits forever", "the first rank in a `finally`"], '''
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    try:
+        value = prepare()
+    except Exception:
+        barrier(group)
+        raise
+    barrier(group)
+    return value
'''),
    Wrong("all_at_once", ["nothing holds the others back", "prepare began before rank 0 had finished"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
'''),
    Wrong("asks_for_the_value", ["called again because its value is None"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
+    value = None
@@
     try:
-        return prepare()
+        if group.index == 0:
+            value = prepare()
@@
         barrier(group)
+    if value is None:
+        value = prepare()
+    return value
     # END SOLUTION
'''),
    Wrong("barrier_before", ["nothing holds the others back", "prepare began before rank 0 had finished"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    barrier(group)
+    return prepare()
'''),
    Wrong("barrier_inside_if", ["deadlock", "rank 0 waits in barrier", "Each rank calls the barrier once"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.index == 0:
+        value = prepare()
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    else:
+        value = prepare()
+    return value
'''),
    Wrong("barrier_of_the_world", ["deadlock", "Only the members of the group take part"], '''
 from course_lib.comm import Group, barrier
+import torch.distributed as dist
+from typing import Any
@@
     if group.index != 0:
-        barrier(group)
+        dist.barrier()
@@
     finally:  # also when it raises: the others are waiting
-        barrier(group)
+        dist.barrier()
'''),
    Wrong("barrier_only_on_the_others", ["deadlock", "wait in barrier", "Each rank calls the barrier once"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    return prepare()
'''),
    Wrong("broadcasts_the_value", ["prepare was not called on this rank"], '''
 from course_lib.comm import Group, barrier
+import torch.distributed as dist
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    box = [prepare() if group.index == 0 else None]
+    dist.broadcast_object_list(box, src=group.ranks[0], group=group.handle)
+    return box[0]
'''),
    Wrong("calls_twice", ["called both before and after the barrier"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.index == 0:
+        try:
+            prepare()
+        finally:
+            barrier(group)
+    else:
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    return prepare()
'''),
    Wrong("last_rank_first", ["prepare began before rank 0 had finished"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.index != group.size - 1:
'''),
    Wrong("local_rank_of_the_environment", ["rank 0 of the world is not in this group"], '''
 from course_lib.comm import Group, barrier
+import os
+from typing import Any
@@
-    if group.index != 0:
+    first = os.environ["LOCAL_RANK"] == "0"
+    if not first:
'''),
    Wrong("no_barrier", ["nothing holds the others back"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    return prepare()
'''),
    Wrong("no_finally", ["nobody waits forever", "the first rank in a `finally`"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
+    value = prepare()
+    if group.index == 0:
@@
         barrier(group)
+    return value
     # END SOLUTION
'''),
    Wrong("one_after_another", ["the others called prepare one after another"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    for turn in range(group.size):
+        if turn == group.index:
+            value = prepare()
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    return value
'''),
    Wrong("only_rank_0_returns", ["nothing is returned on this rank"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    if group.index == 0:
+        try:
+            return prepare()
+        finally:
+            barrier(group)
+    barrier(group)
+    prepare()
'''),
    Wrong("others_first", ["the others go first"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.index == 0:
'''),
    Wrong("sleeps_instead", ["prepare began before rank 0 had finished"], '''
 from course_lib.comm import Group, barrier
+import time
+from typing import Any
@@
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+        time.sleep(0.02)
+    return prepare()
'''),
    Wrong("swallows_in_finally", ["it was swallowed"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
+    value = None
@@
     try:
-        return prepare()
+        if group.index == 0:
+            value = prepare()
@@
         barrier(group)
+        if group.index != 0:
+            value = prepare()
+        return value
     # END SOLUTION
'''),
    Wrong("swallows_the_exception", ["it was swallowed"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
         return prepare()
+    except OSError:
+        return None
     finally:  # also when it raises: the others are waiting
'''),
    Wrong("two_barriers_on_the_first", ["deadlock", "rank 0 waits in barrier"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.index == 0:
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+        try:
+            return prepare()
+        finally:
+            barrier(group)
+    barrier(group)
+    return prepare()
'''),
    Wrong("two_barriers_on_the_others", ["deadlock", "wait in barrier"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
-        barrier(group)
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
-        barrier(group)
+    if group.index == 0:
+        try:
+            return prepare()
+        finally:
+            barrier(group)
+    barrier(group)
+    value = prepare()
+    barrier(group)
+    return value
'''),
    Wrong("value_of_the_first", ["the first rank's value"], '''
 from course_lib.comm import Group, barrier
+import torch.distributed as dist
+from typing import Any
@@
-        return prepare()
-    try:
-        return prepare()
-    finally:  # also when it raises: the others are waiting
+    box = [prepare()]
+    if group.index == 0:
@@
         barrier(group)
+    dist.broadcast_object_list(box, src=group.ranks[0], group=group.handle)
+    return box[0]
     # END SOLUTION
'''),
    Wrong("world_rank", ["rank 0 of the world is not in this group"], '''
 from course_lib.comm import Group, barrier
+from typing import Any
@@
-    if group.index != 0:
+    if group.rank != 0:
'''),
]

RIGHT = [
    Right("variant_context_manager", "a context manager, as libraries have it", '''
from collections.abc import Callable
from typing import Any

from contextlib import contextmanager

from course_lib.comm import Group, barrier


@contextmanager
def first_goes_ahead(group: Group):
    if group.index > 0:
        barrier(group)
    try:
        yield
    finally:
        if group.index == 0:
            barrier(group)


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    with first_goes_ahead(group):
        return prepare()
'''),
    Right("variant_messages", "a message to each of the others", '''
from collections.abc import Callable
from typing import Any

import torch

from course_lib.comm import Group, recv, send


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    go = torch.zeros(0)
    if group.index == 0:
        try:
            return prepare()
        finally:
            for peer in range(1, group.size):
                send(go, peer, group)
    recv(go, 0, group)
    return prepare()
'''),
    Right("variant_two_ifs", "the classical two ifs, with one try around", '''
from collections.abc import Callable
from typing import Any

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    first = group.index == 0
    try:
        if not first:
            barrier(group)
        return prepare()
    finally:
        if first:
            barrier(group)
'''),
]
