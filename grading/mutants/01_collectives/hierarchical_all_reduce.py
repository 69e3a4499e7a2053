"""Wrong and right answers to `hierarchical_all_reduce`: see `course dev show hierarchical_all_reduce`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_to_all_if_alone_on_a_node", ["sends its whole part to every other node"], '''
-    data = tensor.contiguous().view(-1)
+    if node.size == 1:
+        own, came = tensor.clone(), torch.empty_like(tensor)
+        for k in range(1, between.size):
+            to, source = (between.index + k) % between.size, (between.index - k) % between.size
+            exchange(own, to, came, source, between)
+            tensor += came
+        return
+    data = tensor.contiguous().view(-1)
'''),
    Wrong("added_in_float32", ["float32"], '''
-    data = tensor.contiguous().view(-1)
+    wide = torch.promote_types(tensor.dtype, torch.float32)
+    data = tensor.contiguous().view(-1).to(wide)
'''),
    Wrong("place_in_the_node_from_the_rank", ["its number in the world does not tell it"], '''
+    local = node.rank % node.size
     parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
+    ring_pass(parts, local - 1, node, adds=True)
+    pieces = parts[local].tensor_split(between.size)
@@
-    ring_pass(parts, node.index, node, adds=False)
+    ring_pass(parts, local, node, adds=False)
'''),
    Wrong("node_from_the_rank", ["its number in the world does not tell it"], '''
+    number = between.rank // node.size
     pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
+    ring_pass(pieces, number - 1, between, adds=True)
+    ring_pass(pieces, number, between, adds=False)
'''),
    Wrong("all_reduces_inside_first", ["bytes sent inside the node", "one pass too many"], '''
     ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
+    ring_pass(parts, node.index, node, adds=False)
'''),
    Wrong("copies_a_view", ["the copy summed"], '''
-    tensor.copy_(data.view(tensor.shape))
'''),
    Wrong("flat_ring", ["uses the group that it is given"], '''
     """
+    world = Group.world(node.ledger)
     # BEGIN SOLUTION
@@
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
-    ring_pass(parts, node.index, node, adds=False)
+    chunks = data.tensor_split(world.size)
+    ring_pass(chunks, world.index - 1, world, adds=True)
+    ring_pass(chunks, world.index, world, adds=False)
'''),
    Wrong("leaders", ["one rank sends for its whole node"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import recv, send
@@
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
-    ring_pass(parts, node.index, node, adds=False)
+    if node.index:
+        send(data, 0, node)
+        recv(data, 0, node)
+    else:
+        incoming = torch.empty_like(data)
+        for source in range(1, node.size):
+            recv(incoming, source, node)
+            data += incoming
+        chunks = data.tensor_split(between.size)
+        ring_pass(chunks, between.index - 1, between, adds=True)
+        ring_pass(chunks, between.index, between, adds=False)
+        for to in range(1, node.size):
+            send(data, to, node)
'''),
    Wrong("mixes_up_the_groups", ["bytes that each rank sends to other nodes"], '''
     """
+    node, between = between, node
     # BEGIN SOLUTION
'''),
    Wrong("only_between", ["the rest of the node is missing"], '''
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
+    pieces = data.tensor_split(between.size)
@@
-    ring_pass(parts, node.index, node, adds=False)
'''),
    Wrong("only_inside", ["the other nodes are missing"], '''
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
'''),
    Wrong("part_to_every_node", ["pass the pieces round"], '''
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
+    mine = parts[node.index].clone()
+    for step in range(1, between.size):
+        to, source = (between.index + step) % between.size, (between.index - step) % between.size
+        incoming = torch.empty_like(mine)
+        exchange(mine, to, incoming, source, between)
+        parts[node.index].add_(incoming)
'''),
    Wrong("two_all_reduces", ["the whole tensor crosses", "reduce-scatter inside the node first"], '''
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
-    ring_pass(parts, node.index, node, adds=False)
+    for group in (node, between):
+        chunks = data.tensor_split(group.size)
+        ring_pass(chunks, group.index - 1, group, adds=True)
+        ring_pass(chunks, group.index, group, adds=False)
'''),
    Wrong("uses_comm_rings", ["an import that this exercise does not allow: course_lib.comm.ring_all_gather"], '''
 from course_lib.comm import Group, exchange
+from course_lib.comm import ring_all_gather, ring_all_reduce, ring_reduce_scatter
@@
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
-    ring_pass(parts, node.index, node, adds=False)
+    mine = ring_reduce_scatter(data, node)
+    ring_all_reduce(mine, between)
+    ring_all_gather(data, node)
'''),
    Wrong("uses_the_library", ["what this exercise does not allow: course_lib.comm.hierarchical_all_reduce"], '''
 from course_lib.comm import Group, exchange
+from course_lib import comm
@@
-    data = tensor.contiguous().view(-1)
-    parts = data.tensor_split(node.size)
-    ring_pass(parts, node.index - 1, node, adds=True)  # part node.index is the node's sum
-    pieces = parts[node.index].tensor_split(between.size)
-    ring_pass(pieces, between.index - 1, between, adds=True)
-    ring_pass(pieces, between.index, between, adds=False)  # now it is the sum over all nodes
-    ring_pass(parts, node.index, node, adds=False)
-    tensor.copy_(data.view(tensor.shape))
+    comm.hierarchical_all_reduce(tensor, node, between)
'''),
    Wrong("wrong_part", ["wrong value", "the sum over all ranks of all nodes"], '''
-    pieces = parts[node.index].tensor_split(between.size)
+    pieces = parts[between.index % node.size].tensor_split(between.size)
'''),
]

RIGHT = [
    Right("variant_own_ring", "a ring of one's own, in the other direction", '''
import torch

from course_lib.comm import Group, irecv, isend


def step(out: torch.Tensor, room: torch.Tensor, group: Group) -> torch.Tensor:
    receiving, sending = irecv(room, group.next, group), isend(out, group.previous, group)
    receiving.wait()
    sending.wait()
    return room


def reduce_scatter(chunks: list[torch.Tensor], group: Group) -> torch.Tensor:
    passing = chunks[group.next]
    for away in range(2, group.size + 1):
        mine = chunks[(group.index + away) % group.size]
        passing = step(passing, torch.empty_like(mine), group) + mine
    return passing


def all_gather(chunks: list[torch.Tensor], mine: torch.Tensor, group: Group) -> torch.Tensor:
    found = {group.index: mine}
    for away in range(1, group.size):
        index = (group.index + away) % group.size
        found[index] = step(found[(index - 1) % group.size], torch.empty_like(chunks[index]), group)
    return torch.cat([found[index] for index in range(group.size)])


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    parts = list(tensor.flatten().tensor_split(node.size))
    mine = reduce_scatter(parts, node)
    pieces = list(mine.tensor_split(between.size))
    mine = all_gather(pieces, reduce_scatter(pieces, between), between)
    tensor.copy_(all_gather(parts, mine, node).view(tensor.shape))
'''),
    Right("variant_straight_inside", "inside the node straight to the owner, between nodes the ring", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, exchange


def ring_pass(chunks: Sequence[torch.Tensor], first: int, group: Group, adds: bool) -> None:
    for step in range(group.size - 1):
        giving, taking = (first - step) % group.size, (first - step - 1) % group.size
        incoming = torch.empty_like(chunks[taking])
        exchange(chunks[giving], group.next, incoming, group.previous, group)
        chunks[taking].copy_(chunks[taking] + incoming if adds else incoming)


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    data = tensor.reshape(-1).clone()
    parts = data.tensor_split(node.size)
    peers = [((node.index + s) % node.size, (node.index - s) % node.size) for s in range(1, node.size)]
    mine = parts[node.index].clone()
    for to, source in peers:
        incoming = torch.empty_like(mine)
        exchange(parts[to], to, incoming, source, node)
        mine += incoming
    pieces = mine.tensor_split(between.size)
    ring_pass(pieces, between.index - 1, between, True)
    ring_pass(pieces, between.index, between, False)
    parts[node.index].copy_(mine)
    for to, source in peers:
        exchange(mine, to, parts[source], source, node)
    tensor.copy_(data.view(tensor.shape))
'''),
]
