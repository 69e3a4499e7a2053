"""Wrong and right answers to `reduce_dtype`: see `course dev show reduce_dtype`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bound_in_float32", ["the dtype of the bound"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return (terms.abs().sum(0) * roundings / (1 - roundings)).float()
'''),
    Wrong("bypasses_comm", ["past course_lib.comm"], '''
 from course_lib.comm import Group, all_reduce
+import torch.distributed as dist
@@
-    all_reduce(share, group)
+    dist.all_reduce(share)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("cast_first", ["cast before it was divided"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = gradient.to(dtype) / group.size
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("cast_not_counted", ["the cast is not counted"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = (ranks - 1) * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("casts_after", ["cast before the reduction", "not after it"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = gradient / group.size
@@
-    return share.to(gradient.dtype)
+    return share.to(dtype).to(gradient.dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("divided_after", ["divided after the sum"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
-    all_reduce(share, group)
+    share = gradient.to(dtype, copy=True)
+    all_reduce(share, group, "avg")
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("divided_before_cast_up", ["divided before it was cast up"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = (gradient / group.size).to(dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("divided_twice", ["divided twice"], '''
-    all_reduce(share, group)
+    all_reduce(share, group, "avg")
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("eps", ["eps is twice the unit roundoff"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("flattened", ["the shape of"], '''
-    return share.to(gradient.dtype)
+    return share.flatten().to(gradient.dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("gathers", ["every rank gathers all gradients"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import all_gather
@@
-    all_reduce(share, group)
-    return share.to(gradient.dtype)
+    shares = torch.empty(group.size * share.numel(), dtype=dtype)
+    all_gather(shares, share.flatten(), group)
+    return shares.view(group.size, *share.shape).sum(0).to(gradient.dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("in_place", ["it was changed"], '''
-    return share.to(gradient.dtype)
+    return gradient.copy_(share)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("largest_term", ["too loose"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return ranks * terms.abs().amax() * torch.ones_like(terms[0]) * roundings / (1 - roundings)
'''),
    Wrong("left_in_reduce_dtype", ["left in the reduce dtype"], '''
-    return share.to(gradient.dtype)
+    return share
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("not_divided", ["the sum", "not the mean"], '''
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = (gradient.to(wide) * 1).to(dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("not_reduced", ["one rank's own gradient"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
-    all_reduce(share, group)
-    return share.to(gradient.dtype)
+    return gradient.to(dtype, copy=True).to(gradient.dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("of_the_sum", ["this is the bound for the sum"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("one_number", ["the shape of the bound"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum() * roundings / (1 - roundings)
'''),
    Wrong("own_dtype", ["summed in the gradient's own dtype"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = gradient / group.size
@@
-    return share.to(gradient.dtype)
+    return share
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("own_roundoff", ["the gradient's unit roundoff"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(gradients[0].dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("ranks_do_not_count", ["the number of ranks is ignored"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("relative_to_the_mean", ["relative to the mean"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.sum(0).abs() * roundings / (1 - roundings)
'''),
    Wrong("returns_nothing", ["nothing is returned"], '''
-    return share.to(gradient.dtype)
+    gradient.copy_(share)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("returns_the_gradient_of_one", ["gradient's own memory"], '''
     """
+    if group.size == 1:
+        return gradient
     # BEGIN SOLUTION: the mean
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("same_memory", ["it was changed"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    if dtype == gradient.dtype:
+        share = gradient.div_(group.size)
+    else:
+        wide = torch.promote_types(gradient.dtype, dtype)
+        share = (gradient.to(wide) / group.size).to(dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("sent_too_wide", ["reduced twice", "or in a dtype twice as wide"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
-    all_reduce(share, group)
-    return share.to(gradient.dtype)
+    share = (gradient.double() / group.size).to(dtype)
+    wider = {torch.float32: torch.float64}.get(dtype, torch.float32)
+    sent = share.to(wider)
+    all_reduce(sent, group)
+    return sent.to(dtype).to(gradient.dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("signed", ["does not hold"], '''
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.sum(0) * roundings / (1 - roundings)
'''),
    Wrong("two_ranks", ["divided by 2"], '''
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = (gradient.to(wide) / 2).to(dtype)
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("zero_stays_away", ["deadlock"], '''
     """
+    if not gradient.any() and gradient.numel():
+        return gradient.clone()
     # BEGIN SOLUTION: the mean
@@
-    ranks, unit = len(gradients), torch.finfo(dtype).eps / 2
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
-    return size * ranks * unit / (1 - ranks * unit)
+    ranks = len(gradients)
+    roundings = ranks * torch.finfo(dtype).eps / 2
+    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
+    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Wrong("bound_changes_gradients", ["the gradients given to error_bound", "afterwards"], '''
-    size = torch.stack([gradient.double().abs() for gradient in gradients]).sum(0) / ranks
+    size = torch.stack([gradient.double().abs_() for gradient in gradients]).sum(0) / ranks
'''),
    Wrong("divided_in_the_longer_dtype", ["divided before it was cast up"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
+    wide = max(gradient.dtype, dtype, key=lambda each: each.itemsize)
'''),
    Wrong("always_divided_in_float32", ["divided in float32, which has not all numbers"], '''
-    wide = torch.promote_types(gradient.dtype, dtype)
-    share = (gradient.to(wide) / group.size).to(dtype)
+    share = (gradient.to(torch.float32) / group.size).to(dtype)
'''),
]

RIGHT = [
    Right("asynchronous", "the work is waited for, and the sum is unrolled", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    wide = torch.promote_types(gradient.dtype, dtype)
    work = all_reduce(sent := gradient.to(wide).div(group.size).to(dtype), group, async_op=True)
    work.wait()
    return torch.empty_like(gradient).copy_(sent)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    ranks = len(gradients)
    roundings = ranks * torch.finfo(dtype).eps / 2
    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
    Right("counts_one_more", "each term is rounded by the division, the cast and N-1 additions, with room", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    wide = torch.promote_types(gradient.dtype, dtype)
    share = (gradient.to(wide) / group.size).to(dtype)
    all_reduce(share, group)
    return share.to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    u, ranks = torch.finfo(dtype).eps / 2, len(gradients)
    total = torch.zeros(gradients[0].shape, dtype=torch.float64)
    for gradient in gradients:
        total += gradient.double().abs() / ranks
    return total * ((1 + u) ** (ranks + 0.5) - 1)
'''),
    Right("first_order", "k·u without its second order, and gradients divided in float64", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    share = gradient.double().div(group.size).to(dtype)
    all_reduce(share, group)
    return share.to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    size = sum(gradient.double().abs() for gradient in gradients) / len(gradients)
    return size * len(gradients) * torch.finfo(dtype).eps / 2
'''),
    Right("scatter_gather", "terms are sent to their owner, who adds them up in float64", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_gather, all_to_all


def reduce_mean(gradient: torch.Tensor, group: Group, dtype: torch.dtype) -> torch.Tensor:
    """The mean of a gradient over the ranks, summed in another dtype."""
    wide = torch.promote_types(gradient.dtype, dtype)
    share = (gradient.to(wide) / group.size).to(dtype).flatten()
    rows = -(-share.numel() // group.size)
    padded = torch.zeros(rows * group.size, dtype=dtype)
    padded[: share.numel()] = share
    mine = torch.empty_like(padded)
    all_to_all(mine, padded, group)
    part = mine.view(group.size, rows).double().sum(0).to(dtype)
    all_gather(padded, part, group)
    return padded[: share.numel()].view(gradient.shape).to(gradient.dtype)


def error_bound(gradients: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """How far the mean, summed in `dtype`, can be from the exact one."""
    ranks = len(gradients)
    roundings = ranks * torch.finfo(dtype).eps / 2
    terms = torch.stack([gradient.double() / ranks for gradient in gradients])
    return terms.abs().sum(0) * roundings / (1 - roundings)
'''),
]
