"""Wrong and right answers to `ring_all_reduce`: see `course dev show ring_all_reduce`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("small_tensors_go_round_whole", ["goes round whole: cut it"], '''
     data = tensor.contiguous().view(-1)
+    if op == "sum" and len(data) < group.size:
+        row = data.clone()
+        for _ in range(group.size - 1):
+            came = torch.empty_like(row)
+            exchange(row, group.next, came, group.previous, group)
+            data += came
+            row = came
+        tensor.copy_(data.view(tensor.shape))
+        return
'''),
    Wrong("straight_to_the_owners", ["messages leave the ring"], '''
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        mine = chunks[taking % group.size]
+    for step in range(1, group.size):
+        to, source = (group.index + step) % group.size, (group.index - step) % group.size
+        mine = chunks[group.index]
@@
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+        exchange(chunks[to], to, incoming, source, group)
@@
-    for step in range(group.size - 1):
-        giving, taking = group.index + 1 - step, group.index - step
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
+    for step in range(1, group.size):
+        to, source = (group.index + step) % group.size, (group.index - step) % group.size
+        exchange(chunks[group.index], to, chunks[source], source, group)
'''),
    Wrong("average_at_every_hop", ["avg", "averaged at every hop"], '''
             mine += incoming
+            if op == "avg":
+                mine /= 2
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
@@
-    if op == "avg":
-        data /= group.size
'''),
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+        send(chunks[giving % group.size], group.next, group)
+        recv(incoming, group.previous, group)
@@
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
+        send(chunks[giving % group.size], group.next, group)
+        recv(chunks[taking % group.size], group.previous, group)
'''),
    Wrong("bypasses_comm", ["torch"], '''
 from course_lib.comm import Group, exchange
+import torch.distributed as dist
@@
-    data = tensor.contiguous().view(-1)
-    chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        mine = chunks[taking % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
-        if op == "max":
-            torch.maximum(mine, incoming, out=mine)
-        else:
-            mine += incoming
-    for step in range(group.size - 1):
-        giving, taking = group.index + 1 - step, group.index - step
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
+    dist.all_reduce(tensor, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
@@
-        data /= group.size
-    if not tensor.is_contiguous():
-        tensor.copy_(data.view(tensor.shape))
+        tensor /= group.size
'''),
    Wrong("copies_a_view", ["the memory under a transposed view"], '''
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
@@
-    if not tensor.is_contiguous():
-        tensor.copy_(data.view(tensor.shape))
'''),
    Wrong("float32_on_the_wire", ["float32's rounding"], '''
-        incoming = torch.empty_like(mine)
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+        incoming = torch.empty_like(mine, dtype=torch.float32)
+        exchange(chunks[giving % group.size].float(), group.next, incoming, group.previous, group)
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("forgets_avg", ["this is the sum: for `avg` divide"], '''
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
@@
-    if op == "avg":
-        data /= group.size
'''),
    Wrong("forgets_max", ["this is the sum: `max` must compare"], '''
-        if op == "max":
-            torch.maximum(mine, incoming, out=mine)
-        else:
-            mine += incoming
+        mine += incoming
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("full_tensor", ["the whole tensor goes round the ring"], '''
-    chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        mine = chunks[taking % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+    passing = data.clone()
+    for _ in range(group.size - 1):
+        incoming = torch.empty_like(passing)
+        exchange(passing, group.next, incoming, group.previous, group)
@@
-            torch.maximum(mine, incoming, out=mine)
+            torch.maximum(data, incoming, out=data)
@@
-            mine += incoming
-    for step in range(group.size - 1):
-        giving, taking = group.index + 1 - step, group.index - step
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
+            data += incoming
+        passing = incoming
'''),
    Wrong("gather_then_broadcast", ["everything goes through rank 0"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-    chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        mine = chunks[taking % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
-        if op == "max":
-            torch.maximum(mine, incoming, out=mine)
-        else:
-            mine += incoming
-    for step in range(group.size - 1):
-        giving, taking = group.index + 1 - step, group.index - step
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
-    if op == "avg":
-        data /= group.size
+    if group.index == 0:
+        incoming = torch.empty_like(data)
+        for source in range(1, group.size):
+            recv(incoming, source, group)
+            if op == "max":
+                torch.maximum(data, incoming, out=data)
+            else:
+                data += incoming
+        if op == "avg":
+            data /= group.size
+        for target in range(1, group.size):
+            send(data, target, group)
+    else:
+        send(data, 0, group)
+        recv(data, 0, group)
'''),
    Wrong("not_in_place", ["work on it in place"], '''
-    data = tensor.contiguous().view(-1)
+    data = tensor.flatten().clone()
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
@@
-    if not tensor.is_contiguous():
-        tensor.copy_(data.view(tensor.shape))
+    tensor = data.view(tensor.shape)
'''),
    Wrong("one_hop_too_many", ["a rank needs no message to reach itself", "one message too many"], '''
     chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
+    for step in range(group.size):
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("one_step_short", ["wrong value"], '''
     chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
+    for step in range(group.size - 2):
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("read_before_wait", ["wrong value"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import irecv, isend
@@
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+        incoming.zero_()
+        receiving = irecv(incoming, group.previous, group)
+        sending = isend(chunks[giving % group.size], group.next, group)
@@
             mine += incoming
+        receiving.wait()
+        sending.wait()
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("receives_first", ["deadlock", "waits for a message from rank", "Every send needs its receive"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
+        recv(incoming, group.previous, group)
+        send(chunks[giving % group.size], group.next, group)
@@
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
+        recv(chunks[taking % group.size], group.previous, group)
+        send(chunks[giving % group.size], group.next, group)
'''),
    Wrong("replaces_the_memory", ["memory was replaced"], '''
-    data = tensor.contiguous().view(-1)
+    data = tensor.clone().contiguous().view(-1)
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
@@
-    if not tensor.is_contiguous():
-        tensor.copy_(data.view(tensor.shape))
+    tensor.data = data.view(tensor.shape)
'''),
    Wrong("sizes_must_divide", ["sum on 1–4 ranks"], '''
-    chunks = list(data.tensor_split(group.size))
+    chunks = list(data.split(data.numel() // group.size))
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
    Wrong("uses_all_reduce", ["what this exercise does not allow: course_lib.comm.all_reduce"], '''
 from course_lib.comm import Group, exchange
+from course_lib import comm
@@
-    data = tensor.contiguous().view(-1)
-    chunks = list(data.tensor_split(group.size))
-    for step in range(group.size - 1):
-        giving, taking = group.index - step, group.index - step - 1
-        mine = chunks[taking % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
-        if op == "max":
-            torch.maximum(mine, incoming, out=mine)
-        else:
-            mine += incoming
-    for step in range(group.size - 1):
-        giving, taking = group.index + 1 - step, group.index - step
-        exchange(
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
-        )
-    if op == "avg":
-        data /= group.size
-    if not tensor.is_contiguous():
-        tensor.copy_(data.view(tensor.shape))
+    comm.all_reduce(tensor, group, op)
'''),
    Wrong("wrong_chunk_owner", ["wrong value"], '''
-        giving, taking = group.index + 1 - step, group.index - step
+        giving, taking = group.index - step, group.index - step - 1
@@
-            chunks[giving % group.size],
-            group.next,
-            chunks[taking % group.size],
-            group.previous,
-            group,
+            chunks[giving % group.size], group.next,
+            chunks[taking % group.size], group.previous, group,
'''),
]

RIGHT = [
    Right("variant_list_of_tensors", "a list of chunks, put together at the end", '''
import torch

from course_lib.comm import Group, exchange


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    flat = tensor.flatten()
    parts = [part.clone() for part in flat.tensor_split(group.size)]
    for step in range(group.size - 1):
        give, take = (group.index - step) % group.size, (group.index - step - 1) % group.size
        got = torch.empty_like(parts[take])
        exchange(parts[give], group.next, got, group.previous, group)
        parts[take] = torch.maximum(parts[take], got) if op == "max" else parts[take] + got
    mine = (group.index + 1) % group.size
    if op == "avg":
        parts[mine] = parts[mine] / group.size
    for step in range(group.size - 1):
        give, take = (mine - step) % group.size, (mine - step - 1) % group.size
        exchange(parts[give], group.next, parts[take], group.previous, group)
    tensor.copy_(torch.cat(parts).view(tensor.shape))
'''),
    Right("variant_other_direction", "the ring runs the other way, with isend and irecv", '''
import torch

from course_lib.comm import Group, irecv, isend


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.reshape(-1)
    chunks = data.tensor_split(group.size)
    for step in range(2 * (group.size - 1)):
        adding = step < group.size - 1
        shift = step if adding else step - group.size
        give = chunks[(group.index + shift) % group.size]
        take = chunks[(group.index + shift + 1) % group.size]
        incoming = torch.empty_like(take)
        receiving = irecv(incoming, group.next, group)
        sending = isend(give, group.previous, group)
        receiving.wait()
        sending.wait()
        if not adding:
            take.copy_(incoming)
        elif op == "max":
            take.copy_(torch.maximum(take, incoming))
        else:
            take.add_(incoming)
    if op == "avg":
        data.div_(group.size)
    tensor.copy_(data.view_as(tensor))
'''),
    Right("variant_recursive", "one step a call, blocking messages in two turns", '''
import torch

from course_lib.comm import Group, recv, send


def walk(chunks: list[torch.Tensor], group: Group, op: str, step: int) -> None:
    """Step `step` of both passes, and those after it."""
    if step == 2 * (group.size - 1):
        return
    give, take = (group.index - step) % group.size, (group.index - step - 1) % group.size
    incoming = torch.empty_like(chunks[take])
    if group.index == 0:  # one rank receives first, so the chain of sends can resolve
        recv(incoming, group.previous, group)
        send(chunks[give], group.next, group)
    else:
        send(chunks[give], group.next, group)
        recv(incoming, group.previous, group)
    if step >= group.size - 1:
        chunks[take].copy_(incoming)
    elif op == "max":
        torch.maximum(chunks[take], incoming, out=chunks[take])
    else:
        chunks[take] += incoming
    walk(chunks, group, op, step + 1)


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.contiguous().view(-1)
    walk(list(data.tensor_split(group.size)), group, op, 0)
    if op == "avg":
        data.div_(group.size)
    if data.data_ptr() != tensor.data_ptr():
        tensor.copy_(data.view(tensor.shape))
'''),
]
