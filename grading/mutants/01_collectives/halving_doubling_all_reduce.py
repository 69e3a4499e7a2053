"""Wrong and right answers to `halving_doubling_all_reduce`: see `course dev show halving_doubling_all_reduce`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("blocking_send", ["deadlock", "Everybody sends and nobody receives"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        exchange(given, partner, incoming, partner, group)
+        send(given, partner, group)
+        recv(incoming, partner, group)
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
'''),
    Wrong("copies_a_view", ["the copy summed"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-    tensor.copy_(data.view(tensor.shape))
'''),
    Wrong("does_not_double", ["wrong value"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
'''),
    Wrong("doubling", ["send only halves"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        low, high = part.tensor_split(2)
-        kept, given = (low, high) if group.index < partner else (high, low)
-        incoming = torch.empty_like(kept)
-        exchange(given, partner, incoming, partner, group)
-        kept += incoming
-        reduce(kept, distance // 2)
-        exchange(kept, partner, given, partner, group)
+        incoming = torch.empty_like(part)
+        exchange(part, partner, incoming, partner, group)
+        part += incoming
+        reduce(part, distance // 2)
+
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
'''),
    Wrong("halves_must_be_equal", ["the sum on 1–6 ranks"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        low, high = part.tensor_split(2)
+        low, high = part.split(max(1, part.numel() // 2))[:2]
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
'''),
    Wrong("leaves_the_rest_out", ["they must send their tensors first"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        send(data, group.index - power, group)
@@
-            incoming = torch.empty_like(data)
-            recv(incoming, speaks_for, group)
-            data += incoming
+            pass
'''),
    Wrong("rest_gets_nothing_back", ["must get the result back"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        recv(data, group.index - power, group)
@@
-        if speaks_for < group.size:
-            send(data, speaks_for, group)
'''),
    Wrong("result_is_never_sent_back", ["deadlock"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        if speaks_for < group.size:
-            send(data, speaks_for, group)
'''),
    Wrong("ring", ["number of rounds", "this is the ring"], '''
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
-
-    def reduce(part: torch.Tensor, distance: int) -> None:
-        """Sums `part` over the members whose indices differ from this one's below 2·distance."""
-        if distance == 0:
-            return
-        partner = group.index ^ distance
-        low, high = part.tensor_split(2)
-        kept, given = (low, high) if group.index < partner else (high, low)
-        incoming = torch.empty_like(kept)
-        exchange(given, partner, incoming, partner, group)
-        kept += incoming
-        reduce(kept, distance // 2)
-        exchange(kept, partner, given, partner, group)
-
-    if group.index >= power:
-        send(data, group.index - power, group)
-        recv(data, group.index - power, group)
-    else:
-        speaks_for = group.index + power
-        if speaks_for < group.size:
-            incoming = torch.empty_like(data)
-            recv(incoming, speaks_for, group)
-            data += incoming
-        reduce(data, power // 2)
-        if speaks_for < group.size:
-            send(data, speaks_for, group)
+    chunks = list(data.tensor_split(group.size))
+    for step in range(2 * (group.size - 1)):
+        taking = chunks[(group.index - step - 1) % group.size]
+        incoming = torch.empty_like(taking)
+        exchange(chunks[(group.index - step) % group.size], group.next, incoming, group.previous, group)
+        taking.copy_(taking + incoming if step < group.size - 1 else incoming)
'''),
    Wrong("same_half", ["wrong value", "the sum on 1–6 ranks"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
@@
-        kept, given = (low, high) if group.index < partner else (high, low)
+        kept, given = (low, high)
@@
         exchange(kept, partner, given, partner, group)
+    data = tensor.contiguous().view(-1)
+    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
'''),
    Wrong("through_rank_0", ["everything goes through rank 0", "number of rounds"], '''
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
-
-    def reduce(part: torch.Tensor, distance: int) -> None:
-        """Sums `part` over the members whose indices differ from this one's below 2·distance."""
-        if distance == 0:
-            return
-        partner = group.index ^ distance
-        low, high = part.tensor_split(2)
-        kept, given = (low, high) if group.index < partner else (high, low)
-        incoming = torch.empty_like(kept)
-        exchange(given, partner, incoming, partner, group)
-        kept += incoming
-        reduce(kept, distance // 2)
-        exchange(kept, partner, given, partner, group)
-
-    if group.index >= power:
-        send(data, group.index - power, group)
-        recv(data, group.index - power, group)
-    else:
-        speaks_for = group.index + power
-        if speaks_for < group.size:
-            incoming = torch.empty_like(data)
-            recv(incoming, speaks_for, group)
-            data += incoming
-        reduce(data, power // 2)
-        if speaks_for < group.size:
-            send(data, speaks_for, group)
-    tensor.copy_(data.view(tensor.shape))
+    if group.index:
+        send(tensor, 0, group)
+        recv(tensor, 0, group)
+        return
+    incoming = torch.empty_like(tensor)
+    for source in range(1, group.size):
+        recv(incoming, source, group)
+        tensor += incoming
+    for to in range(1, group.size):
+        send(tensor, to, group)
'''),
    Wrong("uses_the_library", ["what this exercise does not allow: course_lib.comm.halving_doubling_all_reduce"], '''
 from course_lib.comm import Group, exchange, recv, send
+from course_lib import comm
@@
-    data = tensor.contiguous().view(-1)
-    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
-
-    def reduce(part: torch.Tensor, distance: int) -> None:
-        """Sums `part` over the members whose indices differ from this one's below 2·distance."""
-        if distance == 0:
-            return
-        partner = group.index ^ distance
-        low, high = part.tensor_split(2)
-        kept, given = (low, high) if group.index < partner else (high, low)
-        incoming = torch.empty_like(kept)
-        exchange(given, partner, incoming, partner, group)
-        kept += incoming
-        reduce(kept, distance // 2)
-        exchange(kept, partner, given, partner, group)
-
-    if group.index >= power:
-        send(data, group.index - power, group)
-        recv(data, group.index - power, group)
-    else:
-        speaks_for = group.index + power
-        if speaks_for < group.size:
-            incoming = torch.empty_like(data)
-            recv(incoming, speaks_for, group)
-            data += incoming
-        reduce(data, power // 2)
-        if speaks_for < group.size:
-            send(data, speaks_for, group)
-    tensor.copy_(data.view(tensor.shape))
+    comm.halving_doubling_all_reduce(tensor, group)
'''),
    Wrong("last_send_not_waited_for", ["messages are never waited for"], '''
-from course_lib.comm import Group, exchange, recv, send
+from course_lib.comm import Group, exchange, isend, recv, send
@@
         if speaks_for < group.size:
-            send(data, speaks_for, group)
+            isend(data, speaks_for, group)
'''),
]

RIGHT = [
    Right("variant_loops", "two loops over runs of chunks; neighbours fold the ranks left over", '''
import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    data = tensor.reshape(-1)
    power = 1 << (group.size.bit_length() - 1)
    rest = group.size - power
    pairs = group.index < 2 * rest
    team = [index for index in range(group.size) if index >= 2 * rest or index % 2]
    incoming = torch.empty_like(data)
    if pairs and group.index % 2 == 0:
        send(data, group.index + 1, group)
        recv(data, group.index + 1, group)
    else:
        if pairs:
            recv(incoming, group.index - 1, group)
            data = data + incoming
        place = team.index(group.index)
        bounds = [data.numel() * part // power for part in range(power + 1)]
        distances = [1 << bit for bit in range(power.bit_length() - 1)]
        for adds, order in ((True, distances[::-1]), (False, distances)):
            for distance in order:
                other = place ^ distance
                mine, theirs = place // distance * distance, other // distance * distance
                kept = slice(bounds[mine], bounds[mine + distance])
                given = slice(bounds[theirs], bounds[theirs + distance])
                if adds:
                    exchange(data[given], team[other], incoming[kept], team[other], group)
                    data[kept] = data[kept] + incoming[kept]
                else:
                    exchange(data[kept], team[other], incoming[given], team[other], group)
                    data[given] = incoming[given]
        if pairs:
            send(data, group.index - 1, group)
    tensor.copy_(data.view(tensor.shape))
'''),
    Right("variant_nearest_first", "the nearest partner first; works on a copy", '''
import torch

from course_lib.comm import Group, irecv, isend


def swap(out: torch.Tensor, peer: int, group: Group) -> torch.Tensor:
    return out


def trade(out: torch.Tensor, room: torch.Tensor, peer: int, group: Group) -> torch.Tensor:
    work = irecv(room, peer, group), isend(out, peer, group)
    for each in work:
        each.wait()
    return room


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    data, me = tensor.flatten().clone(), group.index
    power = 1
    while 2 * power <= group.size:
        power *= 2
    if me >= power:
        isend(data, me - power, group).wait()
        irecv(data, me - power, group).wait()
        tensor.copy_(data.view_as(tensor))
        return
    if me + power < group.size:
        room = torch.empty_like(data)
        irecv(room, me + power, group).wait()
        data += room
    way, part, distance = [], data, 1
    while distance < power:
        halves = part.tensor_split(2)
        side = int(bool(me & distance))
        kept, given = halves[side], halves[1 - side]
        kept += trade(given, torch.empty_like(kept), me ^ distance, group)
        way.append((kept, given, me ^ distance))
        part, distance = kept, 2 * distance
    for kept, given, peer in reversed(way):
        trade(kept, given, peer, group)
    if me + power < group.size:
        isend(data, me + power, group).wait()
    tensor.copy_(data.view_as(tensor))
'''),
]
