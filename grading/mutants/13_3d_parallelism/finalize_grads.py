"""Wrong and right answers to `finalize_grads`: see `course dev show finalize_grads`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("always_sequence_parallel", ["the gradient of norm on ep 2 × tp 2"], '''
-        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
+        for axes, divisor in reduce_plan(kind, mesh.sizes, True):
'''),
    Wrong("alone_needs_nothing", ["the gradient of expert.1 on ep 2 × tp 2 is None"], '''
-        if parameter.grad is None:
+        if parameter.grad is None and kind == "expert" and mesh["dp", "cp"].size == 1:
+            continue
+        if parameter.grad is None:
'''),
    Wrong("alone_is_not_divided", ["the gradient of expert.0 on ep 2 × tp 2"], '''
-            parameter.grad.div_(divisor)
+            if group is not None and group.size > 1:
+                parameter.grad.div_(divisor)
'''),
    Wrong("float32_on_the_wire", ["the number of bytes sent", "in a wider dtype"], '''
         for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
+            total = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
             group = ends if axes == ENDS else mesh[axes]
-            all_reduce(parameter.grad, group)  # mutate: same
-            parameter.grad.div_(divisor)
+            all_reduce(total, group)
+            parameter.grad.copy_(total / divisor)
'''),
    Wrong("averaged_twice", ["the number of bytes sent", "something is sent twice"], '''
             parameter.grad.div_(divisor)
+    for parameter, kind in held:
+        if parameter.requires_grad and kind != "expert":
+            all_reduce(parameter.grad, mesh["dp", "ep", "cp"], "avg")
'''),
    Wrong("axes_as_text", ["tuple of axes"], '''
-        plan.append(Reduction(("tp",), 1))
+        plan.append(Reduction("tp", 1))
'''),
    Wrong("cp_forgotten", ["ranks of cp have other tokens", "but are left out of the mean"], '''
-    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
-    # An expert's gradient holds the losses of ep already: D of them are in the sum in any case.
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    data = ("dp",) if kind == "expert" else ("dp", "ep")
+    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"])]
'''),
    Wrong("cp_in_the_divisor_only", ["ranks of cp have other tokens", "which is divided by them nevertheless"], '''
-    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
+    data = ("dp",) if kind == "expert" else ("dp", "ep")
'''),
    Wrong("divided_by_dp", ["has the wrong value"], '''
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    return [*plan, Reduction(data, sizes["dp"])]
'''),
    Wrong("ends_are_all_of_pp", ["never ends", "only the first and the last stage do"], '''
-        plan.append(Reduction(ENDS, 1))
+        plan.append(Reduction(("pp",), 1))
'''),
    Wrong("ends_averaged", ["averaged over ends: these are parts of one sum"], '''
-        plan.append(Reduction(ENDS, 1))
+        plan.append(Reduction(ENDS, 2))
'''),
    Wrong("ends_forgotten", ["the rule for tied weights", "the two ends of pp have used the tied weight differently: these were not added up over ends"], '''
-    if kind == "tied" and sizes["pp"] > 1:  # mutate: same
-        plan.append(Reduction(ENDS, 1))
'''),
    Wrong("ends_twice", ["added up over ends twice"], '''
-        plan.append(Reduction(ENDS, 1))
+        plan += [Reduction(ENDS, 1)] * 2
'''),
    Wrong("ep_forgotten", ["ranks of ep have other tokens", "but are left out of the mean"], '''
-    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
-    # An expert's gradient holds the losses of ep already: D of them are in the sum in any case.
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    data = ("dp", "cp")
+    return [*plan, Reduction(data, sizes["dp"] * sizes["cp"])]
'''),
    Wrong("everything_averaged_over_tp", ["averaged over tp: its ranks have other parts of the matrix"], '''
-    if kind == "norm" and sequence:  # mutate: same
-        plan.append(Reduction(("tp",), 1))
+    if True:
+        plan.append(Reduction(("tp",), sizes["tp"]))
'''),
    Wrong("everything_over_tp", ["the rule for ordinary matrices", "added up over tp: its ranks have other parts of the matrix"], '''
-    if kind == "norm" and sequence:  # mutate: same
+    if True:
'''),
    Wrong("experts_divided_by_replicas", ["divided by dp · cp: in the sum are the losses of all ranks of ep as well"], '''
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    divisor = 1
+    for axis in data:
+        divisor *= sizes[axis]
+    return [*plan, Reduction(data, divisor)]
'''),
    Wrong("experts_over_world", ["the rule for experts", "different experts are mixed: ranks of ep do not have the same ones"], '''
-    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
+    data = ("dp", "ep", "cp")
'''),
    Wrong("finalized_twice", ["added up over ends twice", "all was done twice", "something is sent twice"], '''
-    for parameter, kind in held:
+    for parameter, kind in [*held, *held]:
'''),
    Wrong("float32_wire", ["float32"], '''
-            all_reduce(parameter.grad, group)  # mutate: same
+            narrow = parameter.grad.float()
+            all_reduce(narrow, group)
+            parameter.grad.copy_(narrow)
'''),
    Wrong("frozen_takes_part", ["it is frozen"], '''
-        if not parameter.requires_grad:
-            continue
'''),
    Wrong("group_divides", ["divided twice"], '''
-            all_reduce(parameter.grad, group)  # mutate: same
+            all_reduce(parameter.grad, group, "avg")
'''),
    Wrong("new_gradient", ["the gradient of norm on pp 3 × dp 2 is another tensor", "in place"], '''
-            parameter.grad.div_(divisor)
+            parameter.grad = parameter.grad / divisor
'''),
    Wrong("norms_always_over_tp", ["added up over tp: its ranks have the same gradient already", "without sequence parallelism"], '''
-    if kind == "norm" and sequence:  # mutate: same
+    if kind == "norm":
'''),
    Wrong("norms_averaged_over_tp", ["averaged over tp: these are parts of one sum"], '''
-        plan.append(Reduction(("tp",), 1))
+        plan.append(Reduction(("tp",), sizes["tp"]))
'''),
    Wrong("norms_not_over_tp", ["the rule for norms", "each rank of tp has the gradient of its own positions: these were not added up over tp"], '''
-    if kind == "norm" and sequence:  # mutate: same
-        plan.append(Reduction(("tp",), 1))
'''),
    Wrong("norms_over_tp_twice", ["added up over tp twice"], '''
-        plan.append(Reduction(("tp",), 1))
+        plan += [Reduction(("tp",), 1)] * 2
'''),
    Wrong("norms_over_world", ["added up over pp: its ranks do not have the same parameter"], '''
-        plan.append(Reduction(("tp",), 1))
+        plan.append(Reduction(("pp", "tp"), 1))
'''),
    Wrong("not_in_place", ["has the wrong value"], '''
-            all_reduce(parameter.grad, group)  # mutate: same
-            parameter.grad.div_(divisor)
+            total = parameter.grad.clone()
+            all_reduce(total, group)
+            total.div_(divisor)
'''),
    Wrong("only_data", ["gradient of embedding on pp 3 × dp 2", "these were not added up over ends"], '''
-        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
+        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence)[-1:]:
'''),
    Wrong("only_the_first", ["ranks of dp have other tokens", "but are left out of the mean"], '''
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    return plan or [Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
-            all_reduce(parameter.grad, group)  # mutate: same
+            torch.distributed.all_reduce(parameter.grad, group=group.handle)
'''),
    Wrong("pp_for_ends", ["deadlock", "waits in all_reduce", "on pp [0", "2", "4]", "rank 2 finished"], '''
-            group = ends if axes == ENDS else mesh[axes]
+            group = mesh["pp"] if axes == ENDS else mesh[axes]
'''),
    Wrong("sequence_ignored", ["these were not added up over tp"], '''
-        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
+        for axes, divisor in reduce_plan(kind, mesh.sizes, False):
'''),
    Wrong("skips_none", ["deadlock", "takes part as zeros"], '''
-        if not parameter.requires_grad:
+        if parameter.grad is None:
@@
-        if parameter.grad is None:
-            parameter.grad = torch.zeros_like(parameter)
'''),
    Wrong("sums", ["this is the sum: divide by D"], '''
-    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]
+    return [*plan, Reduction(data, 1)]
'''),
    Wrong("weights", ["has the wrong value"], '''
-    for parameter, kind in held:
-        if not parameter.requires_grad:
-            continue
-        if parameter.grad is None:
-            parameter.grad = torch.zeros_like(parameter)
-        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
-            group = ends if axes == ENDS else mesh[axes]
-            all_reduce(parameter.grad, group)  # mutate: same
-            parameter.grad.div_(divisor)
+    with torch.no_grad():
+        for parameter, kind in held:
+            if not parameter.requires_grad:
+                continue
+            if parameter.grad is None:
+                parameter.grad = torch.zeros_like(parameter)
+            for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
+                group = ends if axes == ENDS else mesh[axes]
+                all_reduce(parameter, group)
+                parameter.div_(divisor)
'''),
    Wrong("sums_a_copy", ["ranks of dp have other tokens", "which is divided by them nevertheless"], '''
-            all_reduce(parameter.grad, group)  # mutate: same
+            all_reduce(parameter.grad.contiguous(), group)
'''),
]

RIGHT = [
    Right("variant_axis_by_axis", "the mean first, axis by axis, and sums after it; fields by name", '''
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)


class Reduction(NamedTuple):
    axes: tuple[str, ...]
    divisor: int


class Held(NamedTuple):
    parameter: nn.Parameter
    kind: str


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    divisor = sizes["dp"] * sizes["ep"] * sizes["cp"]
    if kind == "expert":
        return [Reduction(("cp",), 1), Reduction(("dp",), divisor)]
    plan = [Reduction(("dp", "ep", "cp"), divisor)]
    if kind == "norm" and sequence and sizes["tp"] > 1:
        plan.append(Reduction(("tp",), 1))
    if kind == "tied" and sizes["pp"] > 1:
        plan.append(Reduction(ENDS, 1))
    return plan


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    for each in held:
        parameter, kind = each.parameter, each.kind
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
            group = ends if axes == ENDS else mesh[axes]
            all_reduce(parameter.grad, group)
            parameter.grad.div_(divisor)
'''),
    Right("variant_flat", "one message for each kind, dtype and reduction", '''
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)


class Reduction(NamedTuple):
    axes: tuple[str, ...]
    divisor: int


class Held(NamedTuple):
    parameter: nn.Parameter
    kind: str


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    plan = []
    if kind == "norm" and sequence:
        plan.append(Reduction(("tp",), 1))
    if kind == "tied" and sizes["pp"] > 1:
        plan.append(Reduction(ENDS, 1))
    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    live = [(p, kind) for p, kind in held if p.requires_grad]
    for kind, dtype in dict.fromkeys((kind, p.dtype) for p, kind in live):
        own = [p for p, its in live if (its, p.dtype) == (kind, dtype)]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        flat = torch.cat([grad.flatten() for grad in grads])
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
            all_reduce(flat, ends if axes == ENDS else mesh[axes])
            flat /= divisor
        for parameter, grad, part in zip(own, grads, flat.split([p.numel() for p in own]), strict=True):
            parameter.grad = grad.copy_(part.view(parameter.shape))
'''),
    Right("variant_no_plan", "the calls are written out, without the plan", '''
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)


class Reduction(NamedTuple):
    axes: tuple[str, ...]
    divisor: int


class Held(NamedTuple):
    parameter: nn.Parameter
    kind: str


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    plan = []
    if kind == "norm" and sequence:
        plan.append(Reduction(("tp",), 1))
    if kind == "tied" and sizes["pp"] > 1:
        plan.append(Reduction(ENDS, 1))
    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    data = mesh["dp", "ep", "cp"]
    for parameter, kind in held:
        if parameter.requires_grad:
            total = parameter.new_zeros(parameter.shape)
            if parameter.grad is not None:
                total += parameter.grad
            if kind == "norm" and sequence:
                all_reduce(total, mesh["tp"])
            if kind == "tied" and ends is not None:
                all_reduce(total, ends)
            all_reduce(total, mesh["dp", "cp"] if kind == "expert" else data)
            total /= data.size
            parameter.grad = total if parameter.grad is None else parameter.grad.copy_(total)
'''),
    Right("variant_one_reduction_for_norms", "norms over four axes at once; divides first; ENDS always", '''
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

ENDS = ("ends",)


class Reduction(NamedTuple):
    axes: tuple[str, ...]
    divisor: int


class Held(NamedTuple):
    parameter: nn.Parameter
    kind: str


def reduce_plan(kind: str, sizes: Mapping[str, int], sequence: bool) -> list[Reduction]:
    plan = []
    if kind == "tied":
        plan.append(Reduction(ENDS, 1))
    data = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    if kind == "norm" and sequence:
        data = (*data, "tp")
    return [*plan, Reduction(data, sizes["dp"] * sizes["ep"] * sizes["cp"])]


def finalize_grads(held: Sequence[Held], mesh: Mesh, ends: Group | None, sequence: bool) -> None:
    for parameter, kind in held:
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        for axes, divisor in reduce_plan(kind, mesh.sizes, sequence):
            parameter.grad.div_(divisor)
            group = ends if axes == ENDS else mesh[axes]
            if group is not None:
                all_reduce(parameter.grad, group)
'''),
]
