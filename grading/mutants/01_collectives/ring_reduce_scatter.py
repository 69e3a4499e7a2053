"""Wrong and right answers to `ring_reduce_scatter`: see `course dev show ring_reduce_scatter`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("adds_twice", ["summand is in it twice"], '''
-    passing = chunks[group.previous]
+    passing = 2 * chunks[group.previous]
'''),
    Wrong("all_reduce_and_cut", ["this is a whole all-reduce"], '''
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+    data = tensor.reshape(-1).clone()
+    chunks = data.tensor_split(group.size)
+    for step in range(2 * (group.size - 1)):
+        giving = chunks[(group.index - step - 1) % group.size]
+        taking = chunks[(group.index - step - 2) % group.size]
+        incoming = torch.empty_like(taking)
+        exchange(giving, group.next, incoming, group.previous, group)
+        if step >= group.size - 1:
+            taking.copy_(incoming)
+        elif op == "max":
+            torch.maximum(taking, incoming, out=taking)
+        else:
+            taking += incoming
+    mine = chunks[group.index]
+    return mine / group.size if op == "avg" else mine
'''),
    Wrong("average_at_every_hop", ["averaged at every hop"], '''
-    return passing / group.size if op == "avg" else passing
+        if op == "avg":
+            passing = passing / 2
+    return passing
'''),
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(passing, group.next, incoming, group.previous, group)
+        send(passing, group.next, group)
+        recv(incoming, group.previous, group)
'''),
    Wrong("buffer_of_ones_own_size", ["rank i gets the sum"], '''
-        incoming = torch.empty_like(mine)
+        incoming = torch.empty_like(chunks[group.index])
'''),
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
 from course_lib.comm import Group, exchange
+import torch.distributed as dist
@@
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+    data = tensor.reshape(-1).clone()
+    dist.all_reduce(data, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
+    mine = data.tensor_split(group.size)[group.index]
+    return mine / group.size if op == "avg" else mine
'''),
    Wrong("float32_on_the_wire", ["as large as float32's rounding"], '''
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
+        incoming = torch.empty_like(mine).float()
+        exchange(passing.float(), group.next, incoming, group.previous, group)
'''),
    Wrong("float_buffer", ["the dtype is kept"], '''
-        incoming = torch.empty_like(mine)
+        incoming = torch.empty(mine.shape, dtype=torch.float64)
'''),
    Wrong("forgets_avg", ["this is the sum", "but the operation is `avg`"], '''
-    return passing / group.size if op == "avg" else passing
+    return passing
'''),
    Wrong("forgets_max", ["this is the sum", "but the operation is `max`"], '''
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
+        passing = incoming + mine
'''),
    Wrong("full_tensor", ["the whole tensor goes round the ring"], '''
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
+    data = tensor.reshape(-1).clone()
+    passing = data.clone()
+    for _ in range(group.size - 1):
+        incoming = torch.empty_like(passing)
@@
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+        data = torch.maximum(data, incoming) if op == "max" else data + incoming
+        passing = incoming
+    if op == "avg":
+        data = data / group.size
+    return data.tensor_split(group.size)[group.index]
'''),
    Wrong("gather_then_broadcast", ["a hot spot"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+    data = tensor.reshape(-1).clone()
+    if group.index:
+        send(data, 0, group)
+        recv(data, 0, group)
+    else:
+        incoming = torch.empty_like(data)
+        for source in range(1, group.size):
+            recv(incoming, source, group)
+            data = torch.maximum(data, incoming) if op == "max" else data + incoming
+        if op == "avg":
+            data = data / group.size
+        for to in range(1, group.size):
+            send(data, to, group)
+    return data.tensor_split(group.size)[group.index]
'''),
    Wrong("gather_to_rank_0", ["everything goes through rank 0"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+    data = tensor.reshape(-1).clone()
+    mine = torch.empty_like(data.tensor_split(group.size)[group.index])
+    if group.index:
+        send(data, 0, group)
+        recv(mine, 0, group)
+        return mine
+    incoming = torch.empty_like(data)
+    for source in range(1, group.size):
+        recv(incoming, source, group)
+        data = torch.maximum(data, incoming) if op == "max" else data + incoming
+    if op == "avg":
+        data = data / group.size
+    chunks = data.tensor_split(group.size)
+    for to in range(1, group.size):
+        send(chunks[to], to, group)
+    return chunks[0]
'''),
    Wrong("never_adds_its_own", ["wrong value", "rank 0"], '''
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
+        passing = torch.maximum(incoming, mine) if op == "max" else incoming
'''),
    Wrong("owner_is_two_ahead", ["this is chunk", "rank 0 owns chunk 0"], '''
-    passing = chunks[group.previous]
+    passing = chunks[(group.index - 2) % group.size]
@@
-        mine = chunks[(group.index - step - 2) % group.size]
+        mine = chunks[(group.index - step - 3) % group.size]
'''),
    Wrong("reads_before_wait", ["before its message had arrived"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import irecv, isend
@@
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
+        incoming = torch.zeros_like(mine)
+        receiving = irecv(incoming, group.previous, group)
+        sending = isend(passing, group.next, group)
@@
         passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
+        receiving.wait()
+        sending.wait()
'''),
    Wrong("receives_first", ["deadlock", "Every send needs its receive"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-        exchange(passing, group.next, incoming, group.previous, group)
+        recv(incoming, group.previous, group)
+        send(passing, group.next, group)
'''),
    Wrong("returns_the_whole", ["wrong shape"], '''
-    return passing / group.size if op == "avg" else passing
+    chunks[group.index].copy_(passing / group.size if op == "avg" else passing)
+    return tensor
'''),
    Wrong("sizes_must_divide", ["rank i gets the sum of chunk i", "12"], '''
-    chunks = tensor.reshape(-1).tensor_split(group.size)
+    chunks = tensor.reshape(-1).split(max(1, tensor.numel() // group.size))
'''),
    Wrong("starts_from_zero", ["rank i gets the sum of chunk i", "wrong value", "summand is missing"], '''
     passing = chunks[group.previous]
+    passing = passing * (group.size == 1)
'''),
    Wrong("straight_to_the_owner", ["messages leave the ring"], '''
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
+    mine = chunks[group.index].clone()
+    for step in range(1, group.size):
+        to, source = (group.index + step) % group.size, (group.index - step) % group.size
@@
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+        exchange(chunks[to], to, incoming, source, group)
+        mine = torch.maximum(mine, incoming) if op == "max" else mine + incoming
+    return mine / group.size if op == "avg" else mine
'''),
    Wrong("uses_reduce_scatter", ["what this exercise does not allow: course_lib.comm.ring_reduce_scatter"], '''
 from course_lib.comm import Group, exchange
+from course_lib import comm
@@
-    chunks = tensor.reshape(-1).tensor_split(group.size)
-    passing = chunks[group.previous]
-    for step in range(group.size - 1):
-        mine = chunks[(group.index - step - 2) % group.size]
-        incoming = torch.empty_like(mine)
-        exchange(passing, group.next, incoming, group.previous, group)
-        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
-    return passing / group.size if op == "avg" else passing
+    return comm.ring_reduce_scatter(tensor, group, op)
'''),
    Wrong("view_of_memory", ["cut in the order of memory"], '''
-    chunks = tensor.reshape(-1).tensor_split(group.size)
+    chunks = (tensor if tensor.is_contiguous() else tensor.t().contiguous()).view(-1).tensor_split(group.size)
'''),
    Wrong("wrong_chunk_owner", ["this is chunk", "begin with another chunk"], '''
-    passing = chunks[group.previous]
+    passing = chunks[group.index]
@@
-        mine = chunks[(group.index - step - 2) % group.size]
+        mine = chunks[(group.index - step - 1) % group.size]
'''),
    Wrong("sends_not_waited_for", ["messages are never waited for"], '''
-from course_lib.comm import Group, exchange
+from course_lib.comm import Group, isend, recv
@@
-        exchange(passing, group.next, incoming, group.previous, group)
+        isend(passing, group.next, group)
+        recv(incoming, group.previous, group)
'''),
]

RIGHT = [
    Right("variant_in_place", "the sums are built in the tensor's own memory", '''
import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = list(tensor.contiguous().view(-1).tensor_split(group.size))
    for step in range(1, group.size):
        giving, taking = chunks[group.index - step], chunks[(group.index - step - 1)]
        incoming = torch.empty_like(taking)
        exchange(giving, group.next, incoming, group.previous, group)
        if op == "max":
            torch.maximum(taking, incoming, out=taking)
        else:
            taking += incoming
    if op == "avg":
        chunks[group.index] /= group.size
    return chunks[group.index]
'''),
    Right("variant_other_direction", "the ring runs the other way, with isend and irecv", '''
import torch

from course_lib.comm import Group, irecv, isend


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.flatten().tensor_split(group.size)
    passing = chunks[group.next]
    for step in range(2, group.size + 1):
        mine = chunks[(group.index + step) % group.size]
        incoming = torch.empty_like(mine)
        work = isend(passing, group.previous, group), irecv(incoming, group.next, group)
        for each in work:
            each.wait()
        passing = torch.stack([incoming, mine])
        passing = passing.amax(0) if op == "max" else passing.sum(0)
    return passing.div(group.size) if op == "avg" else passing
'''),
    Right("variant_two_turns", "blocking messages, rank 0 receives first", '''
import torch

from course_lib.comm import Group, recv, send


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.reshape(-1).tensor_split(group.size)
    passing = chunks[group.previous]
    for step in range(group.size - 1):
        mine = chunks[(group.index - step - 2) % group.size]
        incoming = torch.empty_like(mine)
        if group.index == 0:
            recv(incoming, group.previous, group)
            send(passing, group.next, group)
        else:
            send(passing, group.next, group)
            recv(incoming, group.previous, group)
        passing = torch.maximum(mine, incoming) if op == "max" else mine + incoming
    return passing / group.size if op == "avg" else passing
'''),
]
