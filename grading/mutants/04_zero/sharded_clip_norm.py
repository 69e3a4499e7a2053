"""Wrong and right answers to `sharded_clip_norm`: see `course dev show sharded_clip_norm`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("scales_contiguous_copies", ["not clipped at all"], '''
-            gradient.mul_(max_norm / (norm + 1e-6))
+            gradient.contiguous().mul_(max_norm / (norm + 1e-6))
'''),
    Wrong("infinity_is_not_clipped", ["an infinite norm is above every limit"], '''
-    if norm > max_norm:
+    if max_norm < norm < float("inf"):
'''),
    Wrong("nan_everywhere", ["NaN is above no limit"], '''
-    if norm > max_norm:
+    if not norm <= max_norm:
'''),
    Wrong("a_margin_above_the_limit", ["after clipping", "not clipped at all"], '''
-    if norm > max_norm:
+    if norm > max_norm + 1e-6:
'''),
    Wrong("leaves_nan_out", ["the norm is finite, but rank 1 has nan"], '''
-    norm = squares.sqrt().item()
+    norm = torch.nan_to_num(squares, nan=0.0, posinf=float("inf")).sqrt().item()
'''),
    Wrong("always_scaled", ["scaled up to the limit"], '''
-    if norm > max_norm:
-        for gradient in [*sharded, *replicated]:
-            gradient.mul_(max_norm / (norm + 1e-6))
+    for gradient in [*sharded, *replicated]:
+        gradient.mul_(max_norm / (norm + 1e-6))
'''),
    Wrong("asks_only_if_large", ["ranks with no gradient"], '''
-    all_reduce(squares, group)
+    if squares.sqrt() > max_norm / group.size:
+        all_reduce(squares, group)
'''),
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
-    all_reduce(squares, group)
+    torch.distributed.all_reduce(squares)
'''),
    Wrong("float32_squares", ["squares that are too large for them"], '''
     for gradient in sharded:
-        squares += gradient.double().square().sum()
+        squares += gradient.float().square().sum()
@@
     for gradient in replicated:
-        squares += gradient.double().square().sum()
+        squares += gradient.float().square().sum()
'''),
    Wrong("gathers_gradients", ["more than one number is sent"], '''
-    for gradient in sharded:
-        squares += gradient.double().square().sum()
-    all_reduce(squares, group)
+    room = torch.zeros(group.size, 256, dtype=torch.float64)
+    row = torch.cat([squares.view(1), *(gradient.double().reshape(-1) for gradient in sharded)])
+    room[group.index, : row.numel()] = row
+    all_reduce(room, group)
+    squares += room.square().sum()
'''),
    Wrong("local_norm", ["the norm of this rank alone"], '''
-    all_reduce(squares, group)
'''),
    Wrong("max_over_ranks", ["the largest rank"], '''
-    all_reduce(squares, group)
+    all_reduce(squares, group, "max")
'''),
    Wrong("mean_over_ranks", ["the mean over the ranks"], '''
-    all_reduce(squares, group)
+    all_reduce(squares, group, "avg")
'''),
    Wrong("new_tensors", ["not clipped at all"], '''
-            gradient.mul_(max_norm / (norm + 1e-6))
+            gradient = gradient * (max_norm / (norm + 1e-6))
'''),
    Wrong("no_root", ["take its square root"], '''
-    norm = squares.sqrt().item()
+    norm = squares.item()
'''),
    Wrong("norms_added", ["squares add up"], '''
         squares += gradient.double().square().sum()
+    squares = squares.sqrt()
     all_reduce(squares, group)
+    squares = squares.square()
+    shared = torch.zeros((), dtype=torch.float64)
@@
-        squares += gradient.double().square().sum()
-    norm = squares.sqrt().item()
+        shared += gradient.double().square().sum()
+    norm = squares.sqrt().item() + shared.sqrt().item()
'''),
    Wrong("one_call_each", ["the number of collectives"], '''
-        squares += gradient.double().square().sum()
-    all_reduce(squares, group)
+        square = gradient.double().square().sum()
+        all_reduce(square, group)
+        squares += square
'''),
    Wrong("own_dtype", ["squares that are too large for them"], '''
     for gradient in sharded:
-        squares += gradient.double().square().sum()
+        squares += gradient.square().sum()
@@
     for gradient in replicated:
-        squares += gradient.double().square().sum()
+        squares += gradient.square().sum()
'''),
    Wrong("replaces_the_memory", ["memory was replaced"], '''
-            gradient.mul_(max_norm / (norm + 1e-6))
+            gradient.data = gradient * (max_norm / (norm + 1e-6))
'''),
    Wrong("replicated_counted_n_times", ["counted once for each rank"], '''
-    all_reduce(squares, group)
@@
         squares += gradient.double().square().sum()
+    all_reduce(squares, group)
     norm = squares.sqrt().item()
'''),
    Wrong("replicated_left_out", ["the replicated gradients are not in the norm"], '''
-    for gradient in replicated:
-        squares += gradient.double().square().sum()
'''),
    Wrong("replicated_not_clipped", ["not clipped at all"], '''
-        for gradient in [*sharded, *replicated]:
+        for gradient in sharded:
'''),
    Wrong("returns_early", ["deadlock"], '''
         squares += gradient.double().square().sum()
+    if not sharded:
+        return float(squares)
     all_reduce(squares, group)
'''),
]

RIGHT = [
    Right("variant_divided", "replicated squares divided by the number of ranks; a factor of at most 1", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    squares = torch.zeros((), dtype=torch.float64)
    for gradient in sharded:
        squares += gradient.double().square().sum()
    for gradient in replicated:
        squares += gradient.double().square().sum() / group.size
    all_reduce(squares, group)
    norm = squares.sqrt().item()
    factor = min(1.0, max_norm / (norm + 1e-6))
    for gradient in [*sharded, *replicated]:
        gradient *= factor
    return norm
'''),
    Right("variant_replicated_by_one_rank", "rank 0 alone adds the replicated squares, before the all-reduce", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    squares = torch.zeros((), dtype=torch.float64)
    for gradient in sharded:
        squares += gradient.double().square().sum()
    if group.index == 0:
        for gradient in replicated:
            squares += gradient.double().square().sum()
    all_reduce(squares, group)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for gradient in [*sharded, *replicated]:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
'''),
    Right("variant_vector_norm", "torch's own norms in float64, ring all-reduce", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, ring_all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    def square(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
        return torch.stack([torch.zeros((), dtype=torch.float64), *norms]).norm() ** 2

    total = square(sharded)
    ring_all_reduce(total, group)
    norm = float((total + square(replicated)) ** 0.5)
    if norm > max_norm:
        for gradient in [*sharded, *replicated]:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
'''),
]
