"""Wrong and right answers to `grad_norm_nd`: see `course dev show grad_norm_nd`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_copies_count", ["copies count as often as they are there"], '''
-    for parameter, same_on, ends in parts:
+    for parameter, _, _ in parts:
@@
-            copies = math.prod(mesh[axis].size for axis in same_on)
-            if ends:
-                copies *= min(2, mesh["pp"].size)
-            squares += parameter.grad.double().square().sum() / copies
+            squares += parameter.grad.double().square().sum()
'''),
    Wrong("a_number_has_no_norm", ["a gradient without dims is left out"], '''
     for parameter, same_on, ends in parts:
-        if parameter.grad is not None:
+        if parameter.grad is not None and parameter.grad.dim():
'''),
    Wrong("all_squares_travel", ["more than a number was sent"], '''
-    all_reduce(squares, mesh.world)
+    both = torch.stack([squares, squares])
+    all_reduce(both, mesh.world)
+    squares = both[0]
'''),
    Wrong("casts_in_place", ["a gradient after grad_norm_nd"], '''
             squares += parameter.grad.double().square().sum() / copies
+            parameter.grad.div_(copies)
'''),
    Wrong("clips_by_local_norm", ["clipped by the rank's own norm"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    own = [part.parameter.grad for part in parts if part.parameter.grad is not None]
+    norm_of_own = math.sqrt(sum(float(grad.double().square().sum()) for grad in own))
+    factor = min(1.0, max_norm / (norm_of_own + 1e-6))
'''),
    Wrong("clips_none_as_zeros", ["None stays None"], '''
-        if part.parameter.grad is not None:
-            part.parameter.grad.mul_(factor)
+        if part.parameter.grad is None:
+            part.parameter.grad = torch.zeros_like(part.parameter)
+        part.parameter.grad.mul_(factor)
'''),
    Wrong("divided_by_dp_not_summed", ["replicas are divided by dp and not summed over it"], '''
-    all_reduce(squares, mesh.world)
+    all_reduce(squares, mesh["pp", "tp"])
'''),
    Wrong("dp_replicas_count", ["replicas count dp times"], '''
-            copies = math.prod(mesh[axis].size for axis in same_on)
+            copies = math.prod(mesh[axis].size for axis in same_on if axis != "dp")
'''),
    Wrong("ends_count_twice", ["tied ends count twice"], '''
-    for parameter, same_on, ends in parts:
+    for parameter, same_on, _ in parts:
@@
-            if ends:
-                copies *= min(2, mesh["pp"].size)
'''),
    Wrong("ends_if_alone", ["tied ends are one part if pp is 1"], '''
-                copies *= min(2, mesh["pp"].size)
+                copies *= 2
'''),
    Wrong("ends_on_all_stages", ["tied ends are on two ranks of pp", "not on all"], '''
-                copies *= min(2, mesh["pp"].size)
+                copies *= mesh["pp"].size
'''),
    Wrong("float32", ["computed and summed in float64"], '''
-            squares += parameter.grad.double().square().sum() / copies
+            squares += parameter.grad.float().square().sum() / copies
'''),
    Wrong("grad_replaced", ["change them in place", "with mul_"], '''
-            part.parameter.grad.mul_(factor)
+            part.parameter.grad = part.parameter.grad * factor
'''),
    Wrong("literal_two", ["copies on tp and on dp count once", "wrong value"], '''
-            copies = math.prod(mesh[axis].size for axis in same_on)
+            copies = 2 ** len([axis for axis in same_on if mesh[axis].size > 1])
'''),
    Wrong("local_norm", ["this is the rank's own share"], '''
-    all_reduce(squares, mesh.world)
'''),
    Wrong("local_raw", ["this is the rank's own norm"], '''
-    for parameter, same_on, ends in parts:
+    for parameter, _, _ in parts:
@@
-            copies = math.prod(mesh[axis].size for axis in same_on)
-            if ends:
-                copies *= min(2, mesh["pp"].size)
-            squares += parameter.grad.double().square().sum() / copies
-    all_reduce(squares, mesh.world)
+            squares += parameter.grad.double().square().sum()
'''),
    Wrong("max_of_all", ["max instead of sum"], '''
-    for parameter, same_on, ends in parts:
+    for parameter, _, _ in parts:
@@
-            copies = math.prod(mesh[axis].size for axis in same_on)
-            if ends:
-                copies *= min(2, mesh["pp"].size)
-            squares += parameter.grad.double().square().sum() / copies
-    all_reduce(squares, mesh.world)
+            squares += parameter.grad.double().square().sum()
+    all_reduce(squares, mesh.world, "max")
'''),
    Wrong("max_of_ranks", ["max instead of sum: the largest rank's"], '''
-    all_reduce(squares, mesh.world)
+    all_reduce(squares, mesh.world, "max")
'''),
    Wrong("mean_of_ranks", ["this is a mean over the ranks"], '''
-    all_reduce(squares, mesh.world)
+    all_reduce(squares, mesh.world, "avg")
'''),
    Wrong("no_parts_stays_away", ["A rank without gradients", "makes the same calls"], '''
     """
+    if not parts:
+        return torch.zeros((), dtype=torch.float64)
     # BEGIN SOLUTION: one factor for all
'''),
    Wrong("no_root", ["this is the square of the norm"], '''
-    return squares.sqrt()
+    return squares
'''),
    Wrong("none_not_looked_at", ["ranks without gradients", "'NoneType' object has no attribute 'double'"], '''
-        if parameter.grad is not None:
-            copies = math.prod(mesh[axis].size for axis in same_on)
-            if ends:
-                copies *= min(2, mesh["pp"].size)
-            squares += parameter.grad.double().square().sum() / copies
+        copies = math.prod(mesh[axis].size for axis in same_on)
+        if ends:
+            copies *= min(2, mesh["pp"].size)
+        squares += parameter.grad.double().square().sum() / copies
'''),
    Wrong("norm_after", ["the norm on pp 2 × dp 2 × tp 2 has the wrong value"], '''
-    return norm
+    return grad_norm_nd(parts, mesh)
'''),
    Wrong("norm_in_its_dtype", ["300 squared is beyond float16"], '''
-            squares += parameter.grad.double().square().sum() / copies
+            squares += parameter.grad.square().sum() / copies
'''),
    Wrong("norms_of_parts_added", ["norms of parts were added up"], '''
-            squares += parameter.grad.double().square().sum() / copies
+            squares += parameter.grad.double().norm() / copies
@@
-    return squares.sqrt()
+    return squares
'''),
    Wrong("not_clipped", ["gradients were not clipped"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
-    for part in parts:
-        if part.parameter.grad is not None:
-            part.parameter.grad.mul_(factor)
'''),
    Wrong("nothing_to_give_stays_away", ["A rank without gradients", "makes the same calls"], '''
-    all_reduce(squares, mesh.world)
+    if squares > 0:
+        all_reduce(squares, mesh.world)
'''),
    Wrong("one_call_a_part", ["one for each part: add up on the rank first"], '''
-    squares = torch.zeros((), dtype=torch.float64)
-    for parameter, same_on, ends in parts:
+    squares = [torch.zeros((), dtype=torch.float64) for _ in range(20)]
+    for square, (parameter, same_on, ends) in zip(squares, parts):
@@
-            squares += parameter.grad.double().square().sum() / copies
-    all_reduce(squares, mesh.world)
-    return squares.sqrt()
+            square += parameter.grad.double().square().sum() / copies
+    for square in squares:
+        all_reduce(square, mesh.world)
+    return torch.stack(squares).sum().sqrt()
'''),
    Wrong("one_call_a_part_hangs", ["A rank without gradients"], '''
-            squares += parameter.grad.double().square().sum() / copies
-    all_reduce(squares, mesh.world)
+            square = parameter.grad.double().square().sum() / copies
+            all_reduce(square, mesh.world)
+            squares += square
'''),
    Wrong("only_divided", ["and not multiplied by max_norm"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    factor = 1 / (float(norm) + 1e-6) if norm > max_norm else 1.0
'''),
    Wrong("past_comm", ["was called past course_lib.comm"], '''
 from course_lib.comm import Mesh, all_reduce
+import torch.distributed as dist
@@
-    all_reduce(squares, mesh.world)
+    dist.all_reduce(squares)
'''),
    Wrong("returns_a_number", ["is no tensor"], '''
-    return squares.sqrt()
+    return float(squares.sqrt())
'''),
    Wrong("returns_float32", ["wrong dtype"], '''
-    return squares.sqrt()
+    return squares.sqrt().float()
'''),
    Wrong("returns_one_element", ["has the wrong shape"], '''
-    squares = torch.zeros((), dtype=torch.float64)
+    squares = torch.zeros(1, dtype=torch.float64)
'''),
    Wrong("root_before_sum", ["the root comes after the sum over the ranks"], '''
-    all_reduce(squares, mesh.world)
-    return squares.sqrt()
+    norm = squares.sqrt()
+    all_reduce(norm, mesh.world)
+    return norm
'''),
    Wrong("short_made_longer", ["short gradients were made longer"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    factor = max_norm / (float(norm) + 1e-6)
'''),
    Wrong("square_of_copies", ["copies are divided by the square of their number"], '''
-            squares += parameter.grad.double().square().sum() / copies
+            squares += parameter.grad.double().square().sum() / copies**2
'''),
    Wrong("sum_over_model_only", ["shards of dp are omitted: this is the sum over pp and tp"], '''
-            copies = math.prod(mesh[axis].size for axis in same_on)
+            copies = math.prod(mesh[axis].size for axis in same_on if axis != "dp")
@@
-    all_reduce(squares, mesh.world)
+    all_reduce(squares, mesh["pp", "tp"])
'''),
    Wrong("sum_over_tp_only", ["stages are omitted: this is the sum over tp"], '''
-            copies = math.prod(mesh[axis].size for axis in same_on)
+            copies = math.prod(mesh[axis].size for axis in same_on if axis == "tp")
@@
-    all_reduce(squares, mesh.world)
+    all_reduce(squares, mesh["tp"])
'''),
    Wrong("tp_copies_count", ["what tp leaves whole counts tp times"], '''
-            copies = math.prod(mesh[axis].size for axis in same_on)
+            copies = math.prod(mesh[axis].size for axis in same_on if axis != "tp")
'''),
    Wrong("without_epsilon", ["without the 1e-6 in the denominator"], '''
-    factor = min(1.0, max_norm / (float(norm) + 1e-6))
+    factor = min(1.0, max_norm / (float(norm)))
'''),
    Wrong("scales_a_copy", ["clipped to"], '''
-            part.parameter.grad.mul_(factor)
+            part.parameter.grad.contiguous().mul_(factor)
'''),
]

RIGHT = [
    Right("variant_axis_by_axis", "one axis after the other", '''
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Mesh, all_reduce


class Part(NamedTuple):
    parameter: nn.Parameter
    same_on: tuple[str, ...] = ()
    ends: bool = False


@torch.no_grad()
def grad_norm_nd(parts: Sequence[Part], mesh: Mesh) -> torch.Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for parameter, same_on, ends in parts:
        if parameter.grad is not None:
            copies = math.prod(mesh[axis].size for axis in same_on)
            if ends:
                copies *= min(2, mesh["pp"].size)
            squares += parameter.grad.double().square().sum() / copies
    for axis in ("tp", "pp", "dp"):
        all_reduce(squares, mesh[axis])
    return squares.sqrt()


@torch.no_grad()
def clip_grad_norm_nd(parts: Sequence[Part], mesh: Mesh, max_norm: float) -> torch.Tensor:
    norm = grad_norm_nd(parts, mesh)
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for part in parts:
        if part.parameter.grad is not None:
            part.parameter.grad.mul_(factor)
    return norm
'''),
    Right("variant_first_counts", "the first of the copies counts", '''
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Mesh, all_reduce


class Part(NamedTuple):
    parameter: nn.Parameter
    same_on: tuple[str, ...] = ()
    ends: bool = False


@torch.no_grad()
def grad_norm_nd(parts: Sequence[Part], mesh: Mesh) -> torch.Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for parameter, same_on, ends in parts:
        if parameter.grad is not None:
            first = all(mesh[axis].index == 0 for axis in same_on)
            if first and not (ends and mesh["pp"].index > 0):
                squares += torch.linalg.vector_norm(parameter.grad, dtype=torch.float64) ** 2
    all_reduce(squares, mesh.world)
    return squares.sqrt()


@torch.no_grad()
def clip_grad_norm_nd(parts: Sequence[Part], mesh: Mesh, max_norm: float) -> torch.Tensor:
    norm = grad_norm_nd(parts, mesh)
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for part in parts:
        if part.parameter.grad is not None:
            part.parameter.grad.mul_(factor)
    return norm
'''),
    Right("variant_only_where_needed", "kinds of copies apart, one vector of doubles", '''
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Mesh, all_reduce


class Part(NamedTuple):
    parameter: nn.Parameter
    same_on: tuple[str, ...] = ()
    ends: bool = False


@torch.no_grad()
def grad_norm_nd(parts: Sequence[Part], mesh: Mesh) -> torch.Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for parameter, same_on, ends in parts:
        if parameter.grad is not None:
            copies = 2 if ends and mesh["pp"].size > 1 else 1
            for axis in same_on:
                copies *= mesh[axis].size
            flat = parameter.grad.flatten().double()
            squares += flat @ flat / copies
    all_reduce(squares, mesh.world)
    return squares.sqrt()


@torch.no_grad()
def clip_grad_norm_nd(parts: Sequence[Part], mesh: Mesh, max_norm: float) -> torch.Tensor:
    norm = grad_norm_nd(parts, mesh)
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for part in parts:
        if part.parameter.grad is not None:
            part.parameter.grad *= factor
    return norm
'''),
]
