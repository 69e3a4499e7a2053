"""Wrong and right answers to `zigzag_split`: see `course dev show zigzag_split`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("counts_in_int64", ["wrong dtype"], '''
-    shard = both(x, dim)
+    shard = both(x if x.is_floating_point() else x.long(), dim)
'''),
    Wrong("no_positions_in_float32", ["positions (index 3, n = 4; x is 2×3", "wrong dtype"], '''
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
+    positions = torch.tensor(both(torch.arange(x.shape[dim]), 0).tolist())
'''),
    Wrong("empties_the_list", ["changed"], '''
-    halves = [shard.tensor_split(2, dim) for shard in shards]
+    halves = [shards.pop(0).tensor_split(2, dim) for _ in range(len(shards))]
'''),
    Wrong("always_dim_one", ["any dim", "IndexError"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, 1), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("chunk_n_plus_i", ["chunks i and n+i"], '''
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+        return torch.cat([chunks[index], chunks[n + index]], along)
+
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("contiguous", ["contiguous parts", "uneven work in all"], '''
-    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
-        chunks = tensor.tensor_split(2 * n, along)
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    positions = torch.arange(x.shape[dim]).tensor_split(n)[index]
+    return x.index_select(dim, positions), positions
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    return torch.cat(list(shards), dim)
'''),
    Wrong("detached", ["the gradient of x"], '''
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along).detach()
+
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("drops_the_rest", ["lengths that 2n does not divide", "the remainder is lost"], '''
-        chunks = tensor.tensor_split(2 * n, along)
+        size = tensor.shape[along] // (2 * n)
+        chunks = tensor.narrow(along, 0, size * 2 * n).tensor_split(2 * n, along)
@@
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("float_positions", ["positions", "has the wrong dtype"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(float(x.shape[dim]), device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("int32_positions", ["positions", "has the wrong dtype"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], dtype=torch.int32), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("joins_halves_rounded_down", ["the early chunk is too short"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    halves = [shard.split([shard.shape[dim] // 2, -(-shard.shape[dim] // 2)], dim) for shard in shards]
+    early, late = zip(*halves)
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("joins_in_rank_order", ["the shards are concatenated: their chunks must return"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    return torch.cat(list(shards), dim)
'''),
    Wrong("joins_late_chunks_in_rank_order", ["the late chunks are in the order of the ranks"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *late], dim)
'''),
    Wrong("late_chunk_first", ["the late chunk comes first"], '''
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+        return torch.cat([chunks[2 * n - 1 - index], chunks[index]], along)
+
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("late_chunk_turned_round", ["the late chunk is reversed"], '''
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+        return torch.cat([chunks[index], chunks[2 * n - 1 - index].flip(along)], along)
+
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("negative_dim", ["any dim"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, max(dim, 1)), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("one_too_far", ["IndexError"], '''
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+        return torch.cat([chunks[index], chunks[2 * n - index]], along)
+
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("positions_in_a_row", ["positions", "as if each were contiguous"], '''
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    length = shard.shape[dim]
+    return shard, torch.arange(length) + index * length
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("positions_in_the_shard", ["positions", "counted in the shard"], '''
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return shard, torch.arange(shard.shape[dim])
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("shard_alone", ["the result has the wrong form", "a tuple (shard", "positions)"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("striped", ["every n-th position: striped", "counted in the shard"], '''
-    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
-        chunks = tensor.tensor_split(2 * n, along)
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    order = torch.arange(x.shape[dim])[index::n]
+    return x.index_select(dim, order), torch.arange(len(order))
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    total = sum(shard.shape[dim] for shard in shards)
+    whole = torch.cat(list(shards), dim)
+    order = torch.cat([torch.arange(total)[i :: len(shards)] for i in range(len(shards))])
+    return whole.index_select(dim, order.argsort())
'''),
    Wrong("striped_with_positions", ["every n-th position: striped"], '''
-    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
-        chunks = tensor.tensor_split(2 * n, along)
-        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)
-
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    order = torch.arange(x.shape[dim])[index::n]
+    return x.index_select(dim, order), order
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("torch_chunk", ["lengths that 2n does not divide", "tensor_split makes the first"], '''
-        chunks = tensor.tensor_split(2 * n, along)
+        chunks = list(tensor.chunk(2 * n, along))
+        while len(chunks) < 2 * n:
+            chunks.append(tensor.narrow(along, 0, 0))
@@
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
-    return shard, positions
+    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
    Wrong("wipes_x", ["x was changed"], '''
-    shard = both(x, dim)
-    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
+    shard, positions = both(x, dim), both(torch.arange(x.shape[dim]), 0)
+    if index == n - 1 and not x.requires_grad:
+        x.zero_()
@@
-    halves = [shard.tensor_split(2, dim) for shard in shards]
-    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
-    return torch.cat(early + late, dim)
+    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
+    return torch.cat([*early, *reversed(late)], dim)
'''),
]

RIGHT = [
    Right("variant_index_copy", "the sequence moved to dim 0; joined by writing at the positions", '''
from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    line = x.movedim(dim, 0)
    places = torch.arange(line.shape[0])
    chunks = torch.tensor_split(places, 2 * n)
    positions = torch.hstack((chunks[index], chunks[-1 - index]))
    return line[positions].movedim(0, dim), positions


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    lines = [shard.movedim(dim, 0) for shard in shards]
    total = sum(len(line) for line in lines)
    whole = torch.zeros((total, *lines[0].shape[1:]), dtype=lines[0].dtype)
    chunks = torch.arange(total).tensor_split(2 * len(lines))
    for i, line in enumerate(lines):
        whole = whole.index_copy(0, torch.cat([chunks[i], chunks[-1 - i]]), line)
    return whole.movedim(0, dim)
'''),
    Right("variant_lengths", "the lengths of the chunks from those of the whole", '''
from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
        chunks = tensor.tensor_split(2 * n, along)
        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)

    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    n = len(shards)
    total = sum(shard.shape[dim] for shard in shards)
    chunks = torch.arange(total).tensor_split(2 * n)
    halves = [shard.split([len(chunks[i]), len(chunks[2 * n - 1 - i])], dim)
              for i, shard in enumerate(shards)]
    early, late = zip(*halves)
    return torch.cat([*early, *reversed(late)], dim)
'''),
    Right("variant_narrow", "narrow, and a walk from both ends", '''
from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    length = x.shape[dim]
    sizes = [length // (2 * n) + (chunk < length % (2 * n)) for chunk in range(2 * n)]
    parts, places = [], []
    for chunk in (index, 2 * n - 1 - index):
        start = sum(sizes[:chunk])
        parts.append(x.narrow(dim, start, sizes[chunk]))
        places.append(torch.arange(start, start + sizes[chunk], device=x.device))
    return torch.cat(parts, dim), torch.cat(places)


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    length, n = sum(shard.shape[dim] for shard in shards), len(shards)
    front, back = [], []
    for i, shard in enumerate(shards):
        first = length // (2 * n) + (i < length % (2 * n))
        front.append(shard.narrow(dim, 0, first))
        back.insert(0, shard.narrow(dim, first, shard.shape[dim] - first))
    return torch.cat(front + back, dim)
'''),
    Right("variant_positions_first", "positions first, then index_select; joined by argsort", '''
from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    length = x.shape[dim]
    small, more = divmod(length, 2 * n)
    starts = [chunk * small + min(chunk, more) for chunk in range(2 * n + 1)]
    other = 2 * n - 1 - index
    positions = torch.tensor(
        [*range(starts[index], starts[index + 1]), *range(starts[other], starts[other + 1])],
        dtype=torch.int64,
    )
    return x.index_select(dim, positions), positions


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    length = sum(shard.shape[dim] for shard in shards)
    line = torch.arange(length)
    order = torch.cat([zigzag_split(line, 0, len(shards), i)[0] for i in range(len(shards))])
    return torch.cat(list(shards), dim).index_select(dim, order.argsort())
'''),
]
