"""Wrong and right answers to `fp8_all_gather`: see `course dev show fp8_all_gather`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("two_dims_at_most", ["matrices of experts"], '''
-    data = mine.new_empty(group.size * len(mine), *mine.shape[1:])
+    flat = mine.reshape(len(mine), -1) if mine.dim() > 1 else mine
+    data = flat.new_empty(group.size * len(flat), *flat.shape[1:])
'''),
    Wrong("agreed_too_late", ["each part was divided by its own scale"], '''
     amax = part.abs().amax()
+    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    mine = (part / scale).to(E4M3).view(torch.uint8)
@@
-    mine = (part / scale).to(E4M3).view(torch.uint8)
'''),
    Wrong("cast_not_viewed", ["the data (a matrix", "has the wrong value"], '''
-    return data.view(E4M3), scale
+    return data.to(E4M3), scale
'''),
    Wrong("gathers_as_it_is", ["the weights are gathered as they are"], '''
-    part = shard.detach().float()
-    amax = part.abs().amax()
-    all_reduce(amax, group, "max")
+    part = shard.detach()
+    whole = part.new_empty(group.size * len(part), *part.shape[1:])
+    all_gather(whole, part, group)
+    whole = whole.float()
+    amax = whole.abs().amax()
@@
-    mine = (part / scale).to(E4M3).view(torch.uint8)
-    data = mine.new_empty(group.size * len(mine), *mine.shape[1:])
-    all_gather(data, mine, group)
-    return data.view(E4M3), scale
+    return (whole / scale).to(E4M3), scale
'''),
    Wrong("gathers_float32", ["float32 is gathered"], '''
-    amax = part.abs().amax()
-    all_reduce(amax, group, "max")
+    whole = part.new_empty(group.size * len(part), *part.shape[1:])
+    all_gather(whole, part, group)
+    amax = whole.abs().amax()
@@
-    mine = (part / scale).to(E4M3).view(torch.uint8)
-    data = mine.new_empty(group.size * len(mine), *mine.shape[1:])
-    all_gather(data, mine, group)
-    return data.view(E4M3), scale
+    return (whole / scale).to(E4M3), scale
'''),
    Wrong("gathers_on_dim_1", ["the data (a matrix", "has the wrong dtype or shape"], '''
-    return data.view(E4M3), scale
+    return torch.cat(data.chunk(group.size), -1).view(E4M3), scale
'''),
    Wrong("gathers_scales", ["scales are gathered too"], '''
-    all_reduce(amax, group, "max")
+    every = amax.new_empty(group.size)
+    all_gather(every, amax[None], group)
+    amax = every.amax()
'''),
    Wrong("in_place", ["the shard was changed"], '''
-    mine = (part / scale).to(E4M3).view(torch.uint8)
+    part = shard.detach().div_(scale)
+    mine = part.float().to(E4M3).view(torch.uint8)
'''),
    Wrong("keeps_the_graph", ["the scale requires a gradient", "no gradient flows through"], '''
-    part = shard.detach().float()
+    part = shard.float()
'''),
    Wrong("largest_not_magnitude", ["the largest number was taken", "not the largest magnitude"], '''
-    amax = part.abs().amax()
+    amax = part.amax()
'''),
    Wrong("mean_of_amax", ["magnitudes were averaged"], '''
-    all_reduce(amax, group, "max")
+    all_reduce(amax, group, "avg")
'''),
    Wrong("own_scale", ["this rank's own scale", "the ranks do not agree", "compared with rank 0's"], '''
-    all_reduce(amax, group, "max")
'''),
    Wrong("past_comm", ["was called past course_lib.comm"], '''
 from course_lib.comm import Group, all_gather, all_reduce
+import torch.distributed as dist
@@
-    all_gather(data, mine, group)
+    dist.all_gather_into_tensor(data, mine.contiguous(), group.handle)
'''),
    Wrong("returns_bytes", ["the data (a matrix", "has the wrong dtype or shape"], '''
-    return data.view(E4M3), scale
+    return data, scale
'''),
    Wrong("row_scales", ["the scale (a matrix", "has the wrong dtype or shape"], '''
-    amax = part.abs().amax()
+    amax = part.abs().amax(-1, keepdim=True)
'''),
    Wrong("scale_inverted", ["the scale is inverted"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    scale = torch.where(amax == 0, 1.0, torch.finfo(E4M3).max / amax)
'''),
    Wrong("sends_decoded", ["16 bits are gathered"], '''
-    mine = (part / scale).to(E4M3).view(torch.uint8)
+    mine = (part / scale).to(E4M3).bfloat16()
@@
-    return data.view(E4M3), scale
+    return data.to(E4M3), scale
'''),
    Wrong("sum_of_amax", ["magnitudes were summed"], '''
-    all_reduce(amax, group, "max")
+    all_reduce(amax, group, "sum")
'''),
    Wrong("zeros", ["zeros were divided by 0"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    scale = amax / torch.finfo(E4M3).max
'''),
    Wrong("zeros_stay_away", ["deadlock"], '''
-    all_reduce(amax, group, "max")
+    if amax > 0:
+        all_reduce(amax, group, "max")
'''),
]

RIGHT = [
    Right("variant_eight_bit_floats", "comm moves 8-bit floats by itself; the reciprocal of the scale", '''
import torch

from course_lib.comm import Group, all_gather, all_reduce

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Collects a weight of which each rank has a part, in 8 bits."""
    part = shard.detach().float()
    amax = part.abs().amax()
    all_reduce(amax, group, "max")
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
    mine = (part * (1 / scale)).to(E4M3)
    data = mine.new_empty(group.size * len(mine), *mine.shape[1:])
    all_gather(data, mine, group)
    return data, scale
'''),
    Right("variant_list", "flat bytes, and amax in a tensor of one element", '''
import torch

from course_lib.comm import Group, all_gather, all_reduce

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Collects a weight of which each rank has a part, in 8 bits."""
    part = shard.detach().float()
    amax = torch.tensor([float(part.abs().max())])
    all_reduce(amax, group, "max")
    scale = (amax / 448 if amax.item() else torch.ones(1)).squeeze()
    mine = (part / scale).to(E4M3).reshape(-1).view(torch.uint8)
    data = torch.empty(group.size * mine.numel(), dtype=torch.uint8)
    all_gather(data, mine, group)
    return data.view(E4M3).view(-1, *shard.shape[1:]), scale
'''),
]
