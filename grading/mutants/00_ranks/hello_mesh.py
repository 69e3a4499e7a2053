"""Wrong and right answers to `hello_mesh`: see `course dev show hello_mesh`."""

from course_lib.grade.author.answers import Right, Wrong

SAME = ["world_size_for_size"]  # `world` is the group of all ranks: its size is the world's

WRONG = [
    Wrong("always_two_nodes", ["with 6 ranks", "2 on each node"], '''
     """
+    ranks_per_node = world.size // 2
     # BEGIN SOLUTION
'''),
    Wrong("dealt_out_in_turn", ["numbered node by node", "not dealt out in turn"], '''
-    node, local_rank = divmod(world.rank, ranks_per_node)
-    firsts = range(0, world.size, ranks_per_node)
-    nodes = [list(range(first, first + ranks_per_node)) for first in firsts]
-    rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
+    local_rank, node = divmod(world.rank, world.size // ranks_per_node)
+    count = world.size // ranks_per_node
+    nodes = [list(range(first, world.size, count)) for first in range(count)]
+    rails = [list(range(first, first + count)) for first in range(0, world.size, count)]
'''),
    Wrong("first_group_for_all", ["a group that the rank is not in"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], rails[local_rank], node_groups[0], rail_groups[local_rank]
'''),
    Wrong("local_rank_from_environment", ["rank in the world", "taken for the local rank"], '''
 from course_lib.comm import Group
+import os
@@
-    node, local_rank = divmod(world.rank, ranks_per_node)
+    node = world.rank // ranks_per_node
+    local_rank = int(os.environ["LOCAL_RANK"])
@@
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], rails[world.rank % ranks_per_node], node_groups[node], rail_groups[world.rank % ranks_per_node]
'''),
    Wrong("local_ranks_in_the_list", ["these are local ranks"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, list(range(ranks_per_node)), rails[local_rank], node_groups[node], rail_groups[local_rank]
'''),
    Wrong("members_only", ["new_group", "for the same groups in the same order"], '''
-    firsts = range(0, world.size, ranks_per_node)
-    nodes = [list(range(first, first + ranks_per_node)) for first in firsts]
-    rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
-    node_groups = [dist.new_group(ranks) for ranks in nodes]  # all of them, on every rank
-    rail_groups = [dist.new_group(ranks) for ranks in rails]
-    return Place(
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
-    )
+    node_ranks = list(range(node * ranks_per_node, (node + 1) * ranks_per_node))
+    rail_ranks = list(range(local_rank, world.size, ranks_per_node))
+    node_group = dist.new_group(node_ranks)
+    rail_group = dist.new_group(rail_ranks)
+    return Place(node, local_rank, node_ranks, rail_ranks, node_group, rail_group)
'''),
    Wrong("members_only_of_all_lists", ["new_group", "for the same groups in the same order"], '''
-    node_groups = [dist.new_group(ranks) for ranks in nodes]  # all of them, on every rank
-    rail_groups = [dist.new_group(ranks) for ranks in rails]
+    node_groups = [dist.new_group(ranks) if world.rank in ranks else None for ranks in nodes]
+    rail_groups = [dist.new_group(ranks) if world.rank in ranks else None for ranks in rails]
'''),
    Wrong("only_the_first_makes_rails", ["rail_group"], '''
-    rail_groups = [dist.new_group(ranks) for ranks in rails]
+    rail_groups = [None] * ranks_per_node
+    rail_groups[0] = dist.new_group(rails[0])  # only the first of a node talks to others
'''),
    Wrong("order_by_parity", ["new_group", "for the same groups in the same order"], '''
     rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
+    if world.rank % 2:
+        rail_groups = [dist.new_group(ranks) for ranks in rails]
@@
-    rail_groups = [dist.new_group(ranks) for ranks in rails]
+    if world.rank % 2 == 0:
+        rail_groups = [dist.new_group(ranks) for ranks in rails]
'''),
    Wrong("own_group_first", ["new_group", "for the same groups in the same order"], '''
-    node_groups = [dist.new_group(ranks) for ranks in nodes]  # all of them, on every rank
+    node_groups = [None] * len(nodes)
+    for k in range(len(nodes)):
+        at = (node + k) % len(nodes)
+        node_groups[at] = dist.new_group(nodes[at])
'''),
    Wrong("rail_from_my_rank", ["the rail begins at this rank"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], list(range(world.rank, world.size, ranks_per_node)), node_groups[node], rail_groups[local_rank]
'''),
    Wrong("rank_for_local_rank", ["rank in the world", "taken for the local rank"], '''
-    node, local_rank = divmod(world.rank, ranks_per_node)
+    node, local_rank = world.rank // ranks_per_node, world.rank
@@
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], rails[local_rank % ranks_per_node], node_groups[node], rail_groups[local_rank % ranks_per_node]
'''),
    Wrong("swapped_groups", ["node group and rail group are swapped"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], rails[local_rank], rail_groups[local_rank], node_groups[node]
'''),
    Wrong("swapped_lists", ["the ranks of the node and of the rail are swapped"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, rails[local_rank], nodes[node], node_groups[node], rail_groups[local_rank]
'''),
    Wrong("swapped_numbers", ["node and local rank are swapped"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        local_rank, node, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
'''),
    Wrong("world_for_node", ["this is the group of all ranks"], '''
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], rails[local_rank], world.handle, rail_groups[local_rank]
'''),
    Wrong("wrong_stride", ["rail_ranks", "stride is the number of nodes"], '''
     rail_groups = [dist.new_group(ranks) for ranks in rails]
+    count = world.size // ranks_per_node
@@
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
+        node, local_rank, nodes[node], list(range(world.rank % count, world.size, count)),
+        node_groups[node], rail_groups[local_rank]
'''),
    Wrong("the_courses_mesh", ["an import that this exercise does not allow: course_lib.comm.Mesh"], '''
-from course_lib.comm import Group
+from course_lib.comm import Group, Mesh
@@
-    node, local_rank = divmod(world.rank, ranks_per_node)
-    firsts = range(0, world.size, ranks_per_node)
-    nodes = [list(range(first, first + ranks_per_node)) for first in firsts]
-    rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
-    node_groups = [dist.new_group(ranks) for ranks in nodes]  # all of them, on every rank
-    rail_groups = [dist.new_group(ranks) for ranks in rails]
-    return Place(
-        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
-    )
+    mesh = Mesh(world, {"node": world.size // ranks_per_node, "local": ranks_per_node})
+    place, node, rail = mesh.get_coordinate(), mesh["local"], mesh["node"]
+    return Place(place["node"], place["local"], list(node.ranks), list(rail.ranks),
+                 node.handle, rail.handle)
'''),
]

RIGHT = [
    Right("variant_enumeration", "new_subgroups_by_enumeration, the rails first, and a grid as a tensor", '''
from dataclasses import dataclass

import torch
import torch.distributed as dist

from course_lib.comm import Group


@dataclass
class Place:
    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    grid = torch.arange(world.size).view(-1, ranks_per_node)
    node, local_rank = (int(place) for place in (grid == dist.get_rank()).nonzero()[0])
    rail_group, _ = dist.new_subgroups_by_enumeration(grid.t().tolist())
    node_group, _ = dist.new_subgroups_by_enumeration(grid.tolist())
    return Place(
        node, local_rank, grid[node].tolist(), grid[:, local_rank].tolist(), node_group, rail_group
    )
'''),
    Right("variant_local_synchronization", "only members make a group, in the way that torch has for it", '''
from dataclasses import dataclass

import torch.distributed as dist

from course_lib.comm import Group


@dataclass
class Place:
    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    node, local_rank = divmod(world.rank, ranks_per_node)
    node_ranks = range(node * ranks_per_node, (node + 1) * ranks_per_node)
    rail_ranks = range(local_rank, world.size, ranks_per_node)
    node_group = dist.new_group(list(node_ranks), use_local_synchronization=True)
    rail_group = dist.new_group(list(rail_ranks), use_local_synchronization=True)
    return Place(node, local_rank, list(node_ranks), list(rail_ranks), node_group, rail_group)
'''),
    Right("variant_loops", "loops that remember the group in which this rank is", '''
from dataclasses import dataclass

import torch.distributed as dist

from course_lib.comm import Group


@dataclass
class Place:
    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    node = world.rank // ranks_per_node
    local_rank = world.rank - node * ranks_per_node
    mine = {}
    for other in range(world.size // ranks_per_node):
        ranks = [other * ranks_per_node + local for local in range(ranks_per_node)]
        group = dist.new_group(ranks)
        if other == node:
            mine["node"] = (ranks, group)
    for local in range(ranks_per_node):
        ranks = [rank for rank in range(world.size) if rank % ranks_per_node == local]
        group = dist.new_group(ranks)
        if local == local_rank:
            mine["rail"] = (ranks, group)
    (node_ranks, node_group), (rail_ranks, rail_group) = mine["node"], mine["rail"]
    return Place(node, local_rank, node_ranks, rail_ranks, node_group, rail_group)
'''),
]
