"""Wrong and right answers to `all_to_all_v`: see `course dev show all_to_all_v`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import recv, send
@@
-        under_way = []
+        if inputs[to].numel():
+            send(inputs[to], to, group)
@@
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
-        for work in under_way:
-            work.wait()
+            recv(outputs[source], source, group)
'''),
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
 from course_lib.comm import Group, irecv, isend
+import torch.distributed as dist
@@
-    for step in range(1, group.size):
-        to, source = (group.index + step) % group.size, (group.index - step) % group.size
-        under_way = []
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
-        for work in under_way:
-            work.wait()
+    works = []
+    for peer in range(group.size):
+        if peer != group.index and outputs[peer].numel():
+            works.append((dist.irecv(room := torch.empty_like(outputs[peer]).contiguous(), peer), peer, room))
+    for peer in range(group.size):
+        if peer != group.index and inputs[peer].numel():
+            dist.isend(inputs[peer].contiguous(), peer).wait()
+    for work, peer, room in works:
+        work.wait()
+        outputs[peer].copy_(room)
'''),
    Wrong("does_not_wait", ["large messages", "nothing was written"], '''
-        for work in under_way:
-            work.wait()
'''),
    Wrong("everything_to_everybody", ["each byte is sent once", "every rank gets everything"], '''
-        under_way = []
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
-        for work in under_way:
-            work.wait()
+        taken = outputs[source].clone()
+        for index in range(group.size):  # all pieces of one size: the others cannot be known
+            room = [irecv(torch.empty_like(taken), source, group)] if index != group.index else []
+            if index == group.index:
+                room = [irecv(taken, source, group)]
+            piece = inputs[index] if inputs[index].shape == inputs[to].shape else inputs[to]
+            room.append(isend(piece, to, group))
+            for work in room:
+                work.wait()
+        outputs[source].copy_(taken)
'''),
    Wrong("flattens_views", ["a non-contiguous output was copied"], '''
-            under_way.append(irecv(outputs[source], source, group))
+            under_way.append(irecv(outputs[source].contiguous(), source, group))
'''),
    Wrong("float32_on_the_wire", ["as large as float32's rounding"], '''
-            under_way.append(irecv(outputs[source], source, group))
+            narrow = outputs[source].float()
+            under_way.append(irecv(narrow, source, group))
@@
-            under_way.append(isend(inputs[to], to, group))
+            under_way.append(isend(inputs[to].float(), to, group))
@@
             work.wait()
+        if outputs[source].numel():
+            outputs[source].copy_(narrow)
'''),
    Wrong("forgets_its_own", ["a rank's piece for itself must be copied"], '''
-    outputs[group.index].copy_(inputs[group.index])
'''),
    Wrong("one_step_short", ["nothing was written to it"], '''
-    for step in range(1, group.size):
+    for step in range(1, group.size - 1):
'''),
    Wrong("pads_to_the_largest", ["each byte is sent once"], '''
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
+        room = inputs[0].new_zeros(1 << 16)
+        padded = room.clone()
+        padded[: inputs[to].numel()] = inputs[to].flatten()
+        under_way.append(irecv(room, source, group))
+        under_way.append(isend(padded, to, group))
@@
             work.wait()
+        outputs[source].copy_(room[: outputs[source].numel()].view(outputs[source].shape))
'''),
    Wrong("receiver_skips_empty_pieces", ["deadlock", "waits in send", "an empty piece skipped at one end"], '''
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
+        under_way.append(isend(inputs[to], to, group))
'''),
    Wrong("replaces_the_list", ["the output must be filled in place"], '''
-    outputs[group.index].copy_(inputs[group.index])
+    outputs[group.index] = inputs[group.index].clone()
@@
         if outputs[source].numel():
+            outputs[source] = torch.empty_like(outputs[source])
'''),
    Wrong("sender_skips_empty_pieces", ["deadlock", "waits for a message from rank", "an empty piece skipped at one end"], '''
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
+        under_way.append(irecv(outputs[source], source, group))
'''),
    Wrong("sends_empty_messages", ["empty pieces were sent as well"], '''
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
+        under_way.append(irecv(outputs[source], source, group))
+        under_way.append(isend(inputs[to], to, group))
'''),
    Wrong("sends_its_own_piece_to_all", ["this is what rank", "for rank"], '''
-            under_way.append(isend(inputs[to], to, group))
+            under_way.append(isend(inputs[group.index], to, group))
'''),
    Wrong("sends_the_wrong_piece", ["this is what rank", "for rank"], '''
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
+        if inputs[source].numel():
+            under_way.append(isend(inputs[source], to, group))
'''),
    Wrong("sends_to_itself", ["exception", "message to reach itself"], '''
-    outputs[group.index].copy_(inputs[group.index])
-    for step in range(1, group.size):
+    for step in range(group.size):
'''),
    Wrong("skips_by_the_wrong_end", ["deadlock", "an empty piece skipped at one end"], '''
-        if outputs[source].numel():
+        if inputs[source].numel():
'''),
    Wrong("through_rank_0", ["everything goes through rank 0"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import recv, send
@@
+def move(piece: torch.Tensor, way: str, peer: int, group: Group) -> None:
+    if piece.numel() and way == "send":
+        send(piece, peer, group)
+    elif piece.numel():
+        recv(piece, peer, group)
 def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
@@
-    outputs[group.index].copy_(inputs[group.index])
-    for step in range(1, group.size):
-        to, source = (group.index + step) % group.size, (group.index - step) % group.size
-        under_way = []
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
-        for work in under_way:
-            work.wait()
+    me = group.index
+    outputs[me].copy_(inputs[me])
+    for source in range(group.size):
+        for to in range(group.size):
+            if source == to:
+                continue
+            if 0 in (source, to):
+                if me == source:
+                    move(inputs[to], "send", to, group)
+                if me == to:
+                    move(outputs[source], "recv", source, group)
+            elif me == source:
+                move(inputs[to], "send", 0, group)
+            elif me == to:
+                move(outputs[source], "recv", 0, group)
+            elif me == 0:
+                room = torch.empty_like(inputs[0])  # as if all pieces were equal
+                move(room, "recv", source, group)
+                move(room, "send", to, group)
'''),
    Wrong("uses_the_library", ["an import that this exercise does not allow: course_lib.comm.pairwise_all_to_all"], '''
 from course_lib.comm import Group, irecv, isend
+from course_lib.comm import pairwise_all_to_all
@@
-    outputs[group.index].copy_(inputs[group.index])
-    for step in range(1, group.size):
-        to, source = (group.index + step) % group.size, (group.index - step) % group.size
-        under_way = []
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
-        if inputs[to].numel():
-            under_way.append(isend(inputs[to], to, group))
-        for work in under_way:
-            work.wait()
+    pairwise_all_to_all(outputs, inputs, group)
'''),
    Wrong("wrong_transpose", ["this is what rank", "not rank"], '''
-        if outputs[source].numel():
-            under_way.append(irecv(outputs[source], source, group))
+        if outputs[to].numel():
+            under_way.append(irecv(outputs[to], source, group))
'''),
    Wrong("len_for_numel", ["an empty piece of any shape"], '''
-        if outputs[source].numel():
+        if len(outputs[source]):
@@
-        if inputs[to].numel():
+        if len(inputs[to]):
'''),
    Wrong("own_piece_as_flat_view", ["view size is not compatible"], '''
-    outputs[group.index].copy_(inputs[group.index])
+    outputs[group.index].view(-1).copy_(inputs[group.index].view(-1))
'''),
    Wrong("sends_not_waited_for", ["messages are never waited for"], '''
-            under_way.append(isend(inputs[to], to, group))
+            isend(inputs[to], to, group)
'''),
]

RIGHT = [
    Right("variant_all_at_once", "everything started at once, then waited for", '''
import torch

from course_lib.comm import Group, irecv, isend


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    others = [index for index in range(group.size) if index != group.index]
    coming = [irecv(outputs[i], i, group) for i in others if outputs[i].nelement() > 0]
    going = [isend(inputs[j], j, group) for j in others if inputs[j].nelement() > 0]
    outputs[group.index][...] = inputs[group.index]
    for work in coming + going:
        work.wait()
'''),
    Right("variant_backwards", "the nearest behind first, with exchange where both have something", '''
import torch

from course_lib.comm import Group, exchange, recv, send


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    outputs[group.index].copy_(inputs[group.index])
    for step in range(group.size - 1, 0, -1):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        gives, takes = inputs[to].numel() > 0, outputs[source].numel() > 0
        if gives and takes:
            exchange(inputs[to], to, outputs[source], source, group)
        elif gives:
            send(inputs[to], to, group)
        elif takes:
            recv(outputs[source], source, group)
'''),
    Right("variant_blocking_by_rank", "blocking messages, the lower index of a pair sends first", '''
import torch

from course_lib.comm import Group, recv, send


def all_to_all_v(outputs: list[torch.Tensor], inputs: list[torch.Tensor], group: Group) -> None:
    for peer in range(group.size):
        if peer == group.index:
            outputs[peer].copy_(inputs[peer])
            continue
        for sends in (group.index < peer, group.index > peer):
            if sends and inputs[peer].numel():
                send(inputs[peer], peer, group)
            if not sends and outputs[peer].numel():
                recv(outputs[peer], peer, group)
'''),
]
