"""Wrong and right answers to `broadcast_tree`: see `course dev show broadcast_tree`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
 from course_lib.comm import Group, recv, send
+import torch.distributed as dist
@@
-    place = (group.index - source) % group.size  # how far behind the source
-    reach = 1  # places 0 ... reach-1 have the tensor
-    while reach < group.size:
-        if place < reach:
-            if place + reach < group.size:
-                send(tensor, (group.index + reach) % group.size, group)
-        elif place < 2 * reach:
-            recv(tensor, (group.index - reach) % group.size, group)
-        reach *= 2
+    data = tensor.contiguous()
+    dist.broadcast(data, group.ranks[source])
+    tensor.copy_(data)
'''),
    Wrong("chain", ["number of rounds", "a chain"], '''
-    place = (group.index - source) % group.size  # how far behind the source
-    reach = 1  # places 0 ... reach-1 have the tensor
-    while reach < group.size:
-        if place < reach:
-            if place + reach < group.size:
-                send(tensor, (group.index + reach) % group.size, group)
-        elif place < 2 * reach:
-            recv(tensor, (group.index - reach) % group.size, group)
-        reach *= 2
+    if group.index != source:
+        recv(tensor, group.previous, group)
+    if group.next != source:
+        send(tensor, group.next, group)
'''),
    Wrong("copies_a_view", ["the memory under a transposed view", "the copy filled"], '''
     place = (group.index - source) % group.size  # how far behind the source
+    tensor = tensor.reshape(-1)
'''),
    Wrong("every_place_has_a_partner", ["deadlock", "Every send needs its receive"], '''
-            if place + reach < group.size:
+            if True:
'''),
    Wrong("fills_a_copy", ["not into this tensor", "rank 1"], '''
     place = (group.index - source) % group.size  # how far behind the source
+    tensor = tensor.clone()
'''),
    Wrong("float32_on_the_wire", ["as large as float32's rounding"], '''
-                send(tensor, (group.index + reach) % group.size, group)
+                send(tensor.float(), (group.index + reach) % group.size, group)
@@
-            recv(tensor, (group.index - reach) % group.size, group)
+            narrow = tensor.float()
+            recv(narrow, (group.index - reach) % group.size, group)
+            tensor.copy_(narrow)
'''),
    Wrong("ignores_the_source", ["rank 0 kept its own tensor", "count places from the source"], '''
-    place = (group.index - source) % group.size  # how far behind the source
+    place = group.index  # how far behind the source
'''),
    Wrong("loop_from_source", ["number of rounds", "the source sends to all", "one after another"], '''
-    place = (group.index - source) % group.size  # how far behind the source
-    reach = 1  # places 0 ... reach-1 have the tensor
-    while reach < group.size:
-        if place < reach:
-            if place + reach < group.size:
-                send(tensor, (group.index + reach) % group.size, group)
-        elif place < 2 * reach:
-            recv(tensor, (group.index - reach) % group.size, group)
-        reach *= 2
+    if group.index == source:
+        for to in range(group.size):
+            if to != source:
+                send(tensor, to, group)
+    else:
+        recv(tensor, source, group)
'''),
    Wrong("one_round_too_many", ["deadlock"], '''
-    while reach < group.size:
+    while reach <= group.size:
@@
-            if place + reach < group.size:
+            if place + reach <= group.size:
'''),
    Wrong("powers_of_two_only", ["is not a power of two", "no message came to this rank"], '''
-    while reach < group.size:
+    for _ in range(group.size.bit_length() - 1):
'''),
    Wrong("reads_before_wait", ["large messages", "wrong value"], '''
 from course_lib.comm import Group, recv, send
+from course_lib.comm import irecv
@@
     place = (group.index - source) % group.size  # how far behind the source
+    works = []
@@
-            recv(tensor, (group.index - reach) % group.size, group)
+            works.append(irecv(tensor, (group.index - reach) % group.size, group))
@@
         reach *= 2
+    for work in works:
+        work.wait()
'''),
    Wrong("receives_twice", ["the same tensor came twice"], '''
                 send(tensor, (group.index + reach) % group.size, group)
+                send(tensor, (group.index + reach) % group.size, group)
@@
             recv(tensor, (group.index - reach) % group.size, group)
+            recv(tensor, (group.index - reach) % group.size, group)
'''),
    Wrong("replaces_the_memory", ["memory was replaced"], '''
-            recv(tensor, (group.index - reach) % group.size, group)
+            incoming = torch.empty_like(tensor)
+            recv(incoming, (group.index - reach) % group.size, group)
+            tensor.data = incoming
'''),
    Wrong("sends_to_places", ["exception", "message to reach itself"], '''
-                send(tensor, (group.index + reach) % group.size, group)
+                send(tensor, place + reach, group)
@@
-            recv(tensor, (group.index - reach) % group.size, group)
+            recv(tensor, place - reach, group)
'''),
    Wrong("source_with_the_wrong_sign", ["but the source is rank", "count places from the source"], '''
-    place = (group.index - source) % group.size  # how far behind the source
+    place = (group.index + source) % group.size  # how far behind the source
'''),
    Wrong("uses_broadcast", ["what this exercise does not allow: course_lib.comm.broadcast"], '''
 from course_lib.comm import Group, recv, send
+from course_lib import comm
@@
-    place = (group.index - source) % group.size  # how far behind the source
-    reach = 1  # places 0 ... reach-1 have the tensor
-    while reach < group.size:
-        if place < reach:
-            if place + reach < group.size:
-                send(tensor, (group.index + reach) % group.size, group)
-        elif place < 2 * reach:
-            recv(tensor, (group.index - reach) % group.size, group)
-        reach *= 2
+    comm.broadcast(tensor, source, group)
'''),
    Wrong("uses_the_library_tree", ["an import that this exercise does not allow: course_lib.comm.tree_broadcast"], '''
 from course_lib.comm import Group, recv, send
+from course_lib.comm import tree_broadcast
@@
-    place = (group.index - source) % group.size  # how far behind the source
-    reach = 1  # places 0 ... reach-1 have the tensor
-    while reach < group.size:
-        if place < reach:
-            if place + reach < group.size:
-                send(tensor, (group.index + reach) % group.size, group)
-        elif place < 2 * reach:
-            recv(tensor, (group.index - reach) % group.size, group)
-        reach *= 2
+    tree_broadcast(tensor, source, group)
'''),
    Wrong("sends_not_waited_for", ["messages are never waited for"], '''
-from course_lib.comm import Group, recv, send
+from course_lib.comm import Group, isend, recv
@@
-                send(tensor, (group.index + reach) % group.size, group)
+                isend(tensor, (group.index + reach) % group.size, group)
'''),
]

RIGHT = [
    Right("variant_halves", "the owner of a run of places gives half of it away, recursively", '''
import torch

from course_lib.comm import Group, recv, send


def spread(tensor: torch.Tensor, source: int, group: Group, first: int, end: int) -> None:
    """Place `first` has the tensor; those up to `end` get it."""
    if end - first < 2:
        return
    place, middle = (group.index - source) % group.size, (first + end + 1) // 2
    if place == first:
        send(tensor, (source + middle) % group.size, group)
    if place == middle:
        recv(tensor, (source + first) % group.size, group)
    if place < middle:
        spread(tensor, source, group, first, middle)
    else:
        spread(tensor, source, group, middle, end)


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    spread(tensor, source, group, 0, group.size)
'''),
    Right("variant_immediate_sends", "all sends under way at once, waited for at the end", '''
import torch

from course_lib.comm import Group, irecv, isend


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    order = [(source + place) % group.size for place in range(group.size)]
    place = order.index(group.index)
    if place:
        parent = place - (1 << (place.bit_length() - 1))
        irecv(tensor, order[parent], group).wait()
    children = [place + (1 << bit) for bit in range(place.bit_length(), group.size.bit_length())]
    work = [isend(tensor, order[child], group) for child in children if child < group.size]
    for each in work:
        each.wait()
'''),
    Right("variant_widest_first", "MPICH's order, the farthest first", '''
import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index - source) % group.size
    reach = 1
    while reach < group.size and not place & reach:
        reach *= 2
    if place:
        recv(tensor, (group.index - reach) % group.size, group)
    while reach > 1:
        reach //= 2
        if place + reach < group.size:
            send(tensor, (group.index + reach) % group.size, group)
'''),
]
