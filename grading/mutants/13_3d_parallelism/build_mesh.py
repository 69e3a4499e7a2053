"""Wrong and right answers to `build_mesh`: see `course dev show build_mesh`."""

from course_lib.grade.author.answers import Right, Wrong

SAME = ["world_size_for_size"]  # `world` is the group of all ranks: its size is the world's

WRONG = [
    Wrong("across_by_own_line", ["some ranks refused and the others went on"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
+    line = axis_ranks(world.rank, "tp", sizes)
+    if line[0] // ranks_per_node != line[-1] // ranks_per_node:
'''),
    Wrong("across_by_size_alone", ["tp 2 × dp 2 on 4 ranks", "was not refused"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
+    if sizes.get("tp", 1) > ranks_per_node:
'''),
    Wrong("across_nodes_allowed", ["tp goes across nodes: it would communicate twice"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
-        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
'''),
    Wrong("always_neighbours", ["these are neighbours"], '''
-    place = coordinates(rank, sizes)
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    size = sizes.get(axis, 1)
+    return list(range(rank // size * size, rank // size * size + size))
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("assertion", ["was refused with a different exception", "AssertionError"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
-        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
+    assert count == world.size and not set(sizes) - set(AXES) and min(sizes.values()) > 0
'''),
    Wrong("begins_at_itself", ["the line begins at this rank"], '''
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    size = sizes.get(axis, 1)
+    return [rank_of({**place, axis: (place[axis] + i) % size}, sizes) for i in range(size)]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
+        axis: sorted({tuple(sorted(axis_ranks(rank, axis, sizes))) for rank in range(world.size)})
'''),
    Wrong("coordinates_for_ranks", ["these are coordinates"], '''
-    place = coordinates(rank, sizes)
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    return list(range(sizes.get(axis, 1)))
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("coordinates_from_one", ["coordinates are counted from 0"], '''
-    return place
+    return {axis: coordinate + 1 for axis, coordinate in place.items()}
@@
-        rank = rank * sizes.get(axis, 1) + place[axis]
+        rank = rank * sizes.get(axis, 1) + place[axis] - 1
@@
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    return [rank_of({**place, axis: index}, sizes) for index in range(1, sizes.get(axis, 1) + 1)]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("cp_inside_tp", ["tp is outside cp"], '''
-AXES = ("pp", "dp", "ep", "cp", "tp")
+AXES = ("pp", "dp", "ep", "tp", "cp")
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("descending", ["the ranks of a line must ascend"], '''
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    return [rank_of({**place, axis: index}, sizes) for index in reversed(range(sizes.get(axis, 1)))]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
+    if any(line[-1] // ranks_per_node != line[0] // ranks_per_node for line in lines["tp"]):
'''),
    Wrong("dp_outside_pp", ["dp is outside pp"], '''
-AXES = ("pp", "dp", "ep", "cp", "tp")
+AXES = ("dp", "pp", "ep", "cp", "tp")
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("ep_forgotten", ["ep is forgotten"], '''
-AXES = ("pp", "dp", "ep", "cp", "tp")
+AXES = ("pp", "dp", "cp", "tp")
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("ep_outside_dp", ["ep is outside dp"], '''
-AXES = ("pp", "dp", "ep", "cp", "tp")
+AXES = ("pp", "ep", "dp", "cp", "tp")
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("first_stage_makes_pp", ["each calls world.split for the same axes"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    groups = {}
+    for axis in AXES:
+        if axis == "pp" and coordinates(world.rank, sizes)["pp"] > 0:
+            groups[axis] = world
+        else:
+            groups[axis] = world.split(lines[axis], axis)
+    return groups
'''),
    Wrong("groups_descend", ["the ranks of a line must ascend: an index is a coordinate"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split([line[::-1] for line in lines[axis]], axis) for axis in AXES}
'''),
    Wrong("lines_and_names_mixed", ["lines and names are mixed"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split(lines[AXES[AXES.index(axis) - 1]], axis) for axis in AXES}
'''),
    Wrong("literal_sizes", ["is not what it should be"], '''
-        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
+        rank, place[axis] = divmod(rank, (2 if axis in sizes else 1))
@@
-        rank = rank * sizes.get(axis, 1) + place[axis]
+        rank = rank * (2 if axis in sizes else 1) + place[axis]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("members_only", ["each calls world.split for the same axes"], '''
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    made = {}
+    for axis in AXES:
+        if len(lines[axis]) > 1 or world.index in lines[axis][0][:1]:  # one makes the world's
+            made[axis] = world.split(lines[axis], axis)
+        else:
+            made[axis] = world.under(axis)
+    return made
'''),
    Wrong("named_axes_only", ["axes that `sizes` does not name are missing"], '''
-    return place
+    return {axis: place[axis] for axis in sizes}
@@
-        rank = rank * sizes.get(axis, 1) + place[axis]
+        rank = rank * sizes.get(axis, 1) + place.get(axis, 0)
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("names_mixed", ["the axis of the"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split(lines[axis], "mesh") for axis in AXES}
'''),
    Wrong("negative_sizes", ["a mesh of dp -1 × ep -1 × pp 2"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or count != world.size:
'''),
    Wrong("no_group_of_one", ["has a group, including those of size 1"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split(lines[axis], axis) for axis in AXES if sizes.get(axis, 1) > 1}
'''),
    Wrong("no_modulo", ["the rest is missing"], '''
-    place = {}
+    place, stride = {}, 1
@@
-        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
+        place[axis] = rank // stride
+        stride *= sizes.get(axis, 1)
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("order_of_place", ["the axes are in the order of `place`"], '''
-    return place
+    return {axis: place[axis] for axis in AXES}
@@
-    for axis in AXES:
+    for axis in place:
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("order_of_sizes", ["the axes are in the order of `sizes`"], '''
-    for axis in reversed(AXES):
+    for axis in reversed([*sizes, *(a for a in AXES if a not in sizes)]):
@@
-    for axis in AXES:
+    for axis in [*sizes, *(a for a in AXES if a not in sizes)]:
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("own_axes_first", ["each calls world.split for the same axes in the same order"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    place = coordinates(world.rank, sizes)
+    order = sorted(AXES, key=lambda axis: -place[axis])
+    return {axis: world.split(lines[axis], axis) for axis in order}
'''),
    Wrong("own_line_only", ["every index from 0 to 3 must be in exactly one part"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split([axis_ranks(world.rank, axis, sizes)], axis) for axis in AXES}
'''),
    Wrong("ranks_from_one", ["ranks are counted from 0"], '''
     place = {}
+    rank -= 1
@@
-    return rank
+    return rank + 1
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
+        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(1, world.size + 1)})
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {axis: world.split([[r - 1 for r in line] for line in lines[axis]], axis) for axis in AXES}
'''),
    Wrong("refuses_smaller_tp", ["goes across nodes of 2 ranks each"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
-        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
+    if sizes.get("tp", 1) != ranks_per_node:
+        raise ValueError(f"tp {sizes.get('tp', 1)} goes across nodes of {ranks_per_node} ranks each")
'''),
    Wrong("same_coordinate", ["these are the ranks with the same coordinate"], '''
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    ranks = range(math.prod(sizes.values()))
+    return [other for other in ranks if coordinates(other, sizes)[axis] == place[axis]]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("silent", ["the message does not say 8 and 2"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
-        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
+        raise ValueError("wrong sizes")
'''),
    Wrong("sizes_not_looked_at", ["a mesh of dp 2 × tp 4 on 2 ranks", "was refused after groups had been made"], '''
-    count = math.prod(sizes.values())
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
-        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
'''),
    Wrong("sizes_of_one_refused", ["= 4 ranks in a world of 4"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 2 or count != world.size:
'''),
    Wrong("smaller_world_fits", ["a mesh of pp 1 on 2 ranks"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count > world.size:
'''),
    Wrong("strides_mixed", ["strides are mixed"], '''
-        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
+        size = sizes.get(axis, 1)
+        place[axis] = rank // size % size
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("strides_mixed_in_rank", ["the rank at every place", "strides are mixed"], '''
-        rank = rank * sizes.get(axis, 1) + place[axis]
+        rank += place[axis] * sizes.get(axis, 1)
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("tp_outermost", ["tp runs slowest", "tp goes across nodes"], '''
-    for axis in reversed(AXES):
+    for axis in AXES:
@@
-    for axis in AXES:
+    for axis in reversed(AXES):
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
-        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
'''),
    Wrong("tp_outermost_refuses", ["tp runs slowest", "goes across nodes of 2 ranks each"], '''
-    for axis in reversed(AXES):
+    for axis in AXES:
@@
-    for axis in AXES:
+    for axis in reversed(AXES):
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("unknown_axis", ["a mesh of ddp 2 on 2 ranks"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("without_itself", ["the rank itself is missing"], '''
-    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]
+    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1)) if index != place[axis]]
@@
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
'''),
    Wrong("world_for_one", ["this is the world"], '''
-    too_small = any(size < 1 for size in sizes.values())  # mutate: same
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
@@
-    return {axis: world.split(lines[axis], axis) for axis in AXES}
+    return {
+        axis: world.split(lines[axis], axis) if sizes.get(axis, 1) > 1 else world for axis in AXES
+    }
'''),
    Wrong("tp_must_divide_a_node", ["5 on each node", "was refused"], '''
-    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
+    if ranks_per_node % sizes.get("tp", 1):
'''),
    Wrong("unknown_axis_of_one", ["sp 1", "was not refused"], '''
-    if set(sizes) - set(AXES) or too_small or count != world.size:
+    strange = any(sizes[axis] > 1 for axis in set(sizes) - set(AXES))
+    if strange or too_small or count != world.size:
'''),
    Wrong("groups_before_refusal", ["tp 2 on 2 ranks, 1 on each node, was refused after groups had been made"], '''
     if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
+        for axis in AXES:
+            world.split(lines[axis], axis)
         raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
'''),
]

RIGHT = [
    Right("variant_as_array", "an array of ranks, as DeviceMesh", '''
import math
from collections.abc import Mapping

import torch

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def array(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.arange(math.prod(sizes.values())).view([sizes.get(axis, 1) for axis in AXES])


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    found = (array(sizes) == rank).nonzero()[0].tolist()
    return dict(zip(AXES, found, strict=True))


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return int(array(sizes)[tuple(place[axis] for axis in AXES)])


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    place = coordinates(rank, sizes)
    index = [slice(None) if other == axis else place[other] for other in AXES]
    return array(sizes)[tuple(index)].tolist()


def build_mesh(world: Group, sizes: Mapping[str, int], ranks_per_node: int) -> dict[str, Group]:
    count = math.prod(sizes.values())
    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
    lines = {
        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
        for axis in AXES
    }
    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
    return {axis: world.split(lines[axis], axis) for axis in AXES}
'''),
    Right("variant_innermost_first", "groups in another order, the same on all ranks; counts the nodes of each tp line", '''
import math
from collections.abc import Mapping

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    place = {}
    for axis in reversed(AXES):
        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
    return place


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    rank = 0
    for axis in AXES:
        rank = rank * sizes.get(axis, 1) + place[axis]
    return rank


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    place = coordinates(rank, sizes)
    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]


def build_mesh(world: Group, sizes: Mapping[str, int], ranks_per_node: int) -> dict[str, Group]:
    count = math.prod(sizes.values())
    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
    lines = {
        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
        for axis in AXES
    }
    if any(len({rank // ranks_per_node for rank in line}) > 1 for line in lines["tp"]):
        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
    return {axis: world.split(lines[axis][::-1], axis) for axis in AXES[::-1]}
'''),
    Right("variant_strides", "with strides; a message of its own for each refusal, which names one axis", '''
import math
from collections.abc import Mapping

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def stride(axis: str, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.get(inner, 1) for inner in AXES[AXES.index(axis) + 1 :])


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    return {axis: rank // stride(axis, sizes) % sizes.get(axis, 1) for axis in AXES}


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return sum(place[axis] * stride(axis, sizes) for axis in AXES)


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    step, size = stride(axis, sizes), sizes.get(axis, 1)
    first = rank - coordinates(rank, sizes)[axis] * step
    return list(range(first, first + size * step, step))


def build_mesh(world: Group, sizes: Mapping[str, int], ranks_per_node: int) -> dict[str, Group]:
    for axis in sizes:
        if axis not in AXES:
            raise ValueError(f"unknown axis {axis}")
    for axis in AXES:
        if sizes.get(axis, 1) < 1:
            raise ValueError(f"{axis} has size {sizes[axis]}, which is below 1")
    count = math.prod(sizes.values())
    if count != world.size:
        raise ValueError(f"a mesh of {count} ranks in a world of {world.size}")
    lines = {
        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
        for axis in AXES
    }
    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
    return {axis: world.split(lines[axis], axis) for axis in AXES}
'''),
]
