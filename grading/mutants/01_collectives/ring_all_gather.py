"""Wrong and right answers to `ring_all_gather`: see `course dev show ring_all_gather`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("alone_the_chunk_itself", ["the result is the chunk itself"], '''
+    if group.size == 1:
+        return chunk
     gathered = chunk.new_empty(sum(sizes))
'''),
    Wrong("always_sends_its_own", ["all chunks in order", "wrong value"], '''
-    gathered = chunk.new_empty(sum(sizes))
-    parts = gathered.split(sizes)
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
-    return gathered
+    parts = [chunk.clone()] * group.size
+    for step in range(1, group.size):
+        incoming = chunk.new_empty(sizes[group.previous])
+        exchange(chunk, group.next, incoming, group.previous, group)
+        parts[group.index - step] = incoming
+    return torch.cat(parts)
'''),
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+        send(parts[giving % group.size], group.next, group)
+        recv(parts[taking % group.size], group.previous, group)
'''),
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
 from course_lib.comm import Group, exchange
+import torch.distributed as dist
@@
-    gathered = chunk.new_empty(sum(sizes))
-    parts = gathered.split(sizes)
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
-    return gathered
+    parts = [chunk.new_zeros(max(sizes)) for _ in sizes]
+    padded = chunk.new_zeros(max(sizes))
+    padded[: chunk.numel()] = chunk
+    dist.all_gather(parts, padded)
+    return torch.cat([part[:size] for part, size in zip(parts, sizes)])
'''),
    Wrong("chunk_as_buffer", ["the chunk was used as a buffer"], '''
-    gathered = chunk.new_empty(sum(sizes))
-    parts = gathered.split(sizes)
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
-    return gathered
+    parts = [chunk.clone() for _ in sizes]
+    for step in range(1, group.size):
+        source = group.index - step
+        incoming = chunk.new_empty(sizes[source])
+        exchange(parts[source + 1 if source + 1 < group.size else 0], group.next, incoming, group.previous, group)
+        parts[source] = incoming
+        if incoming.shape == chunk.shape:
+            chunk.copy_(incoming)
+    return torch.cat(parts)
'''),
    Wrong("equal_chunks_only", ["all chunks in order"], '''
-    parts = gathered.split(sizes)
+    parts = gathered.tensor_split(group.size)
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("float32_on_the_wire", ["as large as float32's rounding"], '''
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+        outgoing = parts[giving % group.size].float()
+        incoming = parts[taking % group.size].float()
+        exchange(outgoing, group.next, incoming, group.previous, group)
+        parts[taking % group.size].copy_(incoming)
'''),
    Wrong("float_result", ["wrong dtype"], '''
-    gathered = chunk.new_empty(sum(sizes))
+    gathered = torch.empty(sum(sizes), dtype=torch.float64)
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("forgets_its_own", ["wrong value", "rank 0"], '''
-    parts[group.index].copy_(chunk)
+    gathered.zero_()
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("in_the_order_of_arrival", ["not in the order of the ranks"], '''
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
@@
-    return gathered
+    return torch.cat([parts[(group.index - i) % group.size] for i in range(group.size)])
'''),
    Wrong("list_of_chunks", ["is no tensor"], '''
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
@@
-    return gathered
+    return list(parts)
'''),
    Wrong("one_step_short", ["all chunks in order", "wrong value"], '''
-    gathered = chunk.new_empty(sum(sizes))
+    gathered = chunk.new_zeros(sum(sizes))
@@
-    for step in range(group.size - 1):
+    for step in range(group.size - 2):
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("one_step_too_many", ["one message too many"], '''
-    for step in range(group.size - 1):
+    for step in range(group.size if group.size > 1 else 0):
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("own_chunk_first", ["not in the order of the ranks"], '''
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
@@
-    return gathered
+    return torch.cat([parts[(group.index + i) % group.size] for i in range(group.size)])
'''),
    Wrong("passes_on_before_it_came", ["large messages", "wrong value"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import irecv, isend
@@
-    gathered = chunk.new_empty(sum(sizes))
+    gathered = chunk.new_zeros(sum(sizes))
@@
     parts[group.index].copy_(chunk)
+    works = []
@@
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+        works.append(irecv(parts[taking % group.size], group.previous, group))
+        works.append(isend(parts[giving % group.size].clone(), group.next, group))
+    for work in works:
+        work.wait()
'''),
    Wrong("receives_first", ["deadlock", "Every send needs its receive"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+        recv(parts[taking % group.size], group.previous, group)
+        send(parts[giving % group.size], group.next, group)
'''),
    Wrong("straight_to_everybody", ["directly to all others", "messages leave the ring"], '''
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+    for step in range(1, group.size):
+        to, source = (group.index + step) % group.size, (group.index - step) % group.size
+        exchange(parts[group.index], to, parts[source], source, group)
'''),
    Wrong("through_rank_0", ["everything goes through rank 0"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
     gathered = chunk.new_empty(sum(sizes))
+    if group.index:
+        send(chunk, 0, group)
+        recv(gathered, 0, group)
+        return gathered
@@
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+    parts[0].copy_(chunk)
+    for source in range(1, group.size):
+        recv(parts[source], source, group)
+    for to in range(1, group.size):
+        send(gathered, to, group)
'''),
    Wrong("uses_all_gather", ["what this exercise does not allow: course_lib.comm.ring_all_gather"], '''
 from course_lib.comm import Group, exchange
+from course_lib import comm
@@
-    gathered = chunk.new_empty(sum(sizes))
-    parts = gathered.split(sizes)
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
-    return gathered
+    longest = max(sizes)
+    padded = chunk.new_zeros(group.size, longest)
+    padded[group.index, : chunk.numel()] = chunk
+    comm.ring_all_gather(padded, group)
+    return torch.cat([row[:size] for row, size in zip(padded, sizes)])
'''),
    Wrong("whole_row_every_step", ["the whole result goes round the ring"], '''
-    gathered = chunk.new_empty(sum(sizes))
-    parts = gathered.split(sizes)
-    parts[group.index].copy_(chunk)
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+    gathered = chunk.new_zeros(sum(sizes))
+    gathered.split(sizes)[group.index].copy_(chunk)
+    for _ in range(group.size - 1):
+        incoming = torch.empty_like(gathered)
+        exchange(gathered, group.next, incoming, group.previous, group)
+        mine = gathered.split(sizes)[group.index].clone()
+        gathered = torch.where(incoming != 0, incoming, gathered)
+        gathered.split(sizes)[group.index].copy_(mine)
'''),
    Wrong("wrong_chunk", ["all chunks in order", "wrong value"], '''
-        giving, taking = group.index - step, group.index - step - 1
+        giving, taking = group.index + step, group.index + step - 1
@@
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
+            parts[giving % group.size], group.next,
+            parts[taking % group.size], group.previous, group,
'''),
    Wrong("sends_not_waited_for", ["messages are never waited for"], '''
-from course_lib.comm import Group, exchange
+from course_lib.comm import Group, isend, recv
@@
-        exchange(
-            parts[giving % group.size],
-            group.next,
-            parts[taking % group.size],
-            group.previous,
-            group,
-        )
+        isend(parts[giving % group.size], group.next, group)
+        recv(parts[taking % group.size], group.previous, group)
'''),
]

RIGHT = [
    Right("variant_list_of_chunks", "a list of chunks, put together at the end", '''
import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    parts = {group.index: chunk.contiguous()}
    for step in range(group.size - 1):
        giving = (group.index - step) % group.size
        taking = (giving - 1) % group.size
        parts[taking] = torch.empty(sizes[taking], dtype=chunk.dtype)
        exchange(parts[giving], group.next, parts[taking], group.previous, group)
    return torch.cat([parts[index] for index in range(group.size)])
'''),
    Right("variant_other_direction", "the ring runs the other way, with isend and irecv", '''
import torch

from course_lib.comm import Group, irecv, isend


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    row = torch.zeros(sum(sizes), dtype=chunk.dtype)
    begin = [sum(sizes[:index]) for index in range(group.size)]
    parts = [row[b : b + s] for b, s in zip(begin, sizes)]
    parts[group.index][:] = chunk
    at = group.index
    while (at + 1) % group.size != group.index:
        sending = isend(parts[at], group.previous, group)
        at = (at + 1) % group.size
        irecv(parts[at], group.next, group).wait()
        sending.wait()
    return row
'''),
    Right("variant_receives_posted_early", "all receives posted first, sent on as they come", '''
import torch

from course_lib.comm import Group, irecv, isend


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    row = chunk.new_empty(sum(sizes))
    parts = row.split(sizes)
    parts[group.index].copy_(chunk)
    order = [(group.index - step) % group.size for step in range(group.size)]
    coming = [irecv(parts[index], group.previous, group) for index in order[1:]]
    going = []
    for index, work in zip(order, coming):
        going.append(isend(parts[index], group.next, group))
        work.wait()
    for work in going:
        work.wait()
    return row
'''),
]
