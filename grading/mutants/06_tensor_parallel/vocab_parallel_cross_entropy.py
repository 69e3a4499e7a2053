"""Wrong and right answers to `vocab_parallel_cross_entropy`: see `course dev show vocab_parallel_cross_entropy`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("computed_in_float64", ["the dtype of the loss", "have the dtype of the logits"], '''
-        peak = logits_part.amax(-1)
+        peak = logits_part.amax(-1).double()
'''),
    Wrong("sent_in_float64", ["float64 was sent"], '''
-        peak = logits_part.amax(-1)
+        given, logits_part = logits_part.dtype, logits_part.double()
+        peak = logits_part.amax(-1)
@@
-        return total.log() - target
+        return (total.log() - target).to(given)
'''),
    Wrong("peak_begins_at_zero", ["an exponential overflows, or a sum of them is zero"], '''
         all_reduce(peak, group, "max")
+        peak = peak.clamp(min=0.0)
'''),
    Wrong("all_reduce_in_backward", ["N times too large", "something is sent in backward"], '''
         softmax = exponentials.div_(total.unsqueeze(-1))
+        ctx.group = group
@@
         softmax, place, mine = ctx.saved_tensors
+        grad = grad.clone()
+        all_reduce(grad, ctx.group)
'''),
    Wrong("averaged_in_backward", ["something is sent in backward", "each rank has all"], '''
         softmax = exponentials.div_(total.unsqueeze(-1))
+        ctx.group = group
@@
         softmax, place, mine = ctx.saved_tensors
+        grad = grad.clone()
+        all_reduce(grad, ctx.group, "avg")
'''),
    Wrong("divided_in_backward", ["divided by N"], '''
         softmax = exponentials.div_(total.unsqueeze(-1))
+        ctx.size = group.size
@@
-        return slope * grad.unsqueeze(-1), None, None, None
+        return slope * grad.unsqueeze(-1) / ctx.size, None, None, None
'''),
    Wrong("first_logit_lost", ["the loss", "wrong value"], '''
-        mine = (local >= 0) & (local < logits_part.shape[-1])
+        mine = (local > 0) & (local < logits_part.shape[-1])
'''),
    Wrong("float32_sums", ["wrong value", "float32's rounding"], '''
-        total = exponentials.sum(-1)
+        total = exponentials.float().sum(-1)
@@
-        return total.log() - target
+        return total.double().log() - target
'''),
    Wrong("fourth_reduction", ["one reduction too many"], '''
         softmax = exponentials.div_(total.unsqueeze(-1))
+        all_reduce(total, group, "max")
'''),
    Wrong("index_not_masked", ["exception", "index", "out of bounds"], '''
-        place = local.where(mine, 0).unsqueeze(-1)
+        place = local.unsqueeze(-1)
'''),
    Wrong("local_logsumexp", ["logits of ±10 000", "is not finite", "one reduction is missing"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import reduce_from_group
@@
-    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
+    own = logits_part.logsumexp(-1)
+    local = targets - first
+    mine = (local >= 0) & (local < logits_part.shape[-1])
+    target = logits_part.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1)
+    total = reduce_from_group(own.exp(), group)
+    return total.log() - reduce_from_group(target.where(mine, 0), group)
'''),
    Wrong("local_max", ["each rank subtracts its own largest logit"], '''
-        all_reduce(peak, group, "max")
+        all_reduce(peak.clone(), group, "max")
'''),
    Wrong("local_max_left_out", ["each rank subtracts its own largest logit"], '''
-        all_reduce(peak, group, "max")
'''),
    Wrong("local_max_target_alone", ["the loss", "wrong value"], '''
-        all_reduce(peak, group, "max")
+        top = peak.clone()
+        all_reduce(top, group, "max")
@@
-        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
+        target = shifted.gather(-1, place).squeeze(-1)
+        target = (target + peak - top).where(mine, 0)
'''),
    Wrong("logits_changed", ["the logits or the targets were changed in place"], '''
-        shifted = logits_part - peak.unsqueeze(-1)  # mutate: same
+        shifted = logits_part.sub_(peak.unsqueeze(-1))
'''),
    Wrong("logits_gathered", ["the full logits were gathered", "the logits of all ranks are on this rank"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import all_gather
+from torch.nn import functional
@@
-    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
+    size = logits_part.new_tensor([logits_part.shape[-1]])
+    all_reduce(size, group, "max")
+    most = int(size)
+    padding = (0, most - logits_part.shape[-1])
+    front = functional.pad(logits_part.detach(), padding, value=-torch.inf)
+    front = front.movedim(-1, 0).contiguous()
+    whole = front.new_empty(group.size * most, *front.shape[1:])
+    all_gather(whole, front, group)
+    starts = size.new_zeros(group.size)
+    starts[group.index] = first
+    all_reduce(starts, group)
+    own = list(whole.movedim(0, -1).split(most, -1))
+    own[group.index] = functional.pad(logits_part, padding, value=-torch.inf)
+    index = sum(targets >= start for start in starts) - 1
+    place = targets - starts.long()[index] + index * most
+    logits = torch.cat(own, -1)
+    loss = functional.cross_entropy(logits.flatten(0, 1), place.flatten(), reduction="none")
+    return loss.view_as(targets)
'''),
    Wrong("logits_summed", ["the full logits were gathered"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import reduce_from_group
+from torch.nn import functional
@@
-    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
+    end = targets.new_tensor([first + logits_part.shape[-1]])
+    all_reduce(end, group, "max")
+    room = (first, int(end) - first - logits_part.shape[-1])
+    logits = reduce_from_group(functional.pad(logits_part, room), group)
+    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
+    return loss.view_as(targets)
'''),
    Wrong("loss_averaged", ["the loss", "wrong value"], '''
-        return total.log() - target
+        loss = total.log() - target
+        loss /= group.size
+        return loss
'''),
    Wrong("lower_bound_only", ["exception", "out of bounds"], '''
-        mine = (local >= 0) & (local < logits_part.shape[-1])
+        mine = local >= 0
'''),
    Wrong("max_of_rank_0", ["logits of ±10 000", "is not finite", "which need not be this rank's or rank 0's"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import broadcast
@@
-        all_reduce(peak, group, "max")
+        broadcast(peak, 0, group)
'''),
    Wrong("mean_of_the_maxima", ["logits of ±10 000", "is not finite"], '''
-        all_reduce(peak, group, "max")
+        all_reduce(peak, group, "avg")
'''),
    Wrong("mean_over_tokens", ["the loss", "wrong shape"], '''
-        return total.log() - target
+        return (total.log() - target).mean()
@@
-        return slope * grad.unsqueeze(-1), None, None, None
+        return slope * grad / mine.numel(), None, None, None
'''),
    Wrong("minus_one_everywhere", ["one is subtracted on every rank"], '''
-        less_one = -mine.to(softmax.dtype).unsqueeze(-1)
+        less_one = -torch.ones_like(softmax[..., :1])
'''),
    Wrong("negative_loss", ["the sign is wrong"], '''
-        return total.log() - target
+        return target - total.log()
'''),
    Wrong("no_autograd", ["no gradient arrives at the logits"], '''
-    return VocabParallelCrossEntropy.apply(logits_part, targets, first, group)
+    return VocabParallelCrossEntropy.apply(logits_part.detach(), targets, first, group)
'''),
    Wrong("no_max", ["logits of ±10 000", "is not finite", "one reduction is missing"], '''
-        peak = logits_part.amax(-1)
-        all_reduce(peak, group, "max")
-        shifted = logits_part - peak.unsqueeze(-1)  # mutate: same
+        shifted = logits_part.clone()
'''),
    Wrong("no_minus_one", ["the minus one at the target is missing"], '''
-        slope = softmax.scatter_add(-1, place, less_one)
+        slope = softmax
'''),
    Wrong("offset_by_index", ["the loss", "wrong value"], '''
-        local = targets - first
+        local = targets - group.index * logits_part.shape[-1]
'''),
    Wrong("offset_forgotten", ["the loss", "wrong value"], '''
-        local = targets - first
+        local = targets
'''),
    Wrong("one_hot_of_the_whole", ["exception"], '''
         softmax = exponentials.div_(total.unsqueeze(-1))
+        ctx.targets, ctx.vocabulary = targets, group.size * logits_part.shape[-1]
@@
-        slope = softmax.scatter_add(-1, place, less_one)
+        slope = softmax - torch.nn.functional.one_hot(ctx.targets, ctx.vocabulary)
'''),
    Wrong("one_too_many", ["exception", "out of bounds"], '''
-        mine = (local >= 0) & (local < logits_part.shape[-1])
+        mine = (local >= 0) & (local <= logits_part.shape[-1])
'''),
    Wrong("order_by_owner", ["the loss", "wrong value"], '''
-        all_reduce(target, group)  # mutate: same
@@
-        all_reduce(total, group)
+        both = [target, total] if group.index else [total, target]
+        for each in both:
+            all_reduce(each, group)
'''),
    Wrong("owner_only_all_reduce", ["deadlock", "A rank that owns none of the targets"], '''
-        all_reduce(target, group)  # mutate: same
+        if mine.any():
+            all_reduce(target, group)
'''),
    Wrong("plus_one", ["the gradient of the slice", "wrong value"], '''
-        less_one = -mine.to(softmax.dtype).unsqueeze(-1)
+        less_one = mine.to(softmax.dtype).unsqueeze(-1)
'''),
    Wrong("smallest_logit", ["logits of ±10 000", "is not finite"], '''
-        peak = logits_part.amax(-1)
-        all_reduce(peak, group, "max")
+        peak = logits_part.amin(-1)
+        all_reduce(peak, group, "min")
'''),
    Wrong("softmax_of_the_slice", ["the softmax of this rank's slice alone"], '''
-        softmax = exponentials.div_(total.unsqueeze(-1))
+        softmax = logits_part.softmax(-1)
'''),
    Wrong("small_number_in_the_log", ["1e-06 was added to the sum of the exponentials"], '''
-        return total.log() - target
+        return (total + 1e-6).log() - target
'''),
    Wrong("sum_averaged", ["the sum of the exponentials is averaged"], '''
-        all_reduce(total, group)
+        all_reduce(total, group, "avg")
'''),
    Wrong("sum_not_reduced", ["the sum of the exponentials is this rank's own"], '''
-        all_reduce(total, group)
'''),
    Wrong("sum_of_the_maxima", ["logits of ±10 000"], '''
-        all_reduce(peak, group, "max")
+        all_reduce(peak, group)
'''),
    Wrong("target_averaged", ["the target's logit is averaged over the ranks"], '''
-        all_reduce(target, group)  # mutate: same
+        all_reduce(target, group, "avg")
'''),
    Wrong("target_clamped", ["other ranks' targets add this rank's nearest logit"], '''
-        place = local.where(mine, 0).unsqueeze(-1)
-        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
+        place = local.clamp(0, logits_part.shape[-1] - 1).unsqueeze(-1)
+        target = shifted.gather(-1, place).squeeze(-1)
'''),
    Wrong("target_modulo", ["the loss", "wrong value"], '''
-        place = local.where(mine, 0).unsqueeze(-1)
-        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
+        place = (local % logits_part.shape[-1]).unsqueeze(-1)
+        target = shifted.gather(-1, place).squeeze(-1)
'''),
    Wrong("target_not_reduced", ["the target's logit is this rank's own"], '''
-        all_reduce(target, group)  # mutate: same
'''),
    Wrong("target_not_shifted", ["subtracted from one of the two terms only"], '''
-        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
+        target = logits_part.gather(-1, place).squeeze(-1).where(mine, 0)
'''),
    Wrong("target_of_another_shard", ["other ranks' targets add this rank's logit 0"], '''
-        target = shifted.gather(-1, place).squeeze(-1).where(mine, 0)
+        target = shifted.gather(-1, place).squeeze(-1)
'''),
    Wrong("targets_changed", ["the logits or the targets were changed in place"], '''
-        local = targets - first
+        local = targets.sub_(first)
'''),
    Wrong("upper_bound_only", ["exception", "out of bounds"], '''
-        mine = (local >= 0) & (local < logits_part.shape[-1])
+        mine = local < logits_part.shape[-1]
'''),
    Wrong("upstream_ignored", ["the incoming gradient is ignored"], '''
-        return slope * grad.unsqueeze(-1), None, None, None
+        return slope, None, None, None
'''),
    Wrong("upstream_mean", ["the gradient of the slice", "wrong value"], '''
-        return slope * grad.unsqueeze(-1), None, None, None
+        return slope * grad.mean(), None, None, None
'''),
    Wrong("whole_softmax_kept", ["the full logits were gathered"], '''
 from course_lib.comm import Group, all_reduce
+from course_lib.comm import all_gather
@@
         softmax = exponentials.div_(total.unsqueeze(-1))
+        if logits_part.is_contiguous():
+            whole = torch.cat([softmax] * group.size)
+            all_gather(whole, softmax, group)
'''),
    Wrong("keeps_two_slices", ["bytes kept for the backward", "one tensor of the slice's size"], '''
-        ctx.save_for_backward(softmax, place, mine)
+        ctx.save_for_backward(softmax, place, mine)
+        ctx.total, ctx.exponentials = total, softmax.clone()
'''),
]

RIGHT = [
    Right("variant_one_reduction_less", "target and sum travel in one all-reduce", '''
from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, first: int, group: Group
    ) -> torch.Tensor:
        peak = logits.max(dim=-1).values
        all_reduce(peak, group, op="max")
        exponentials = (logits - peak[..., None]).exp()
        ids = torch.arange(first, first + logits.shape[-1])
        ctx.hit = targets[..., None] == ids
        picked = torch.where(ctx.hit, logits - peak[..., None], 0.0).sum(-1)
        both = torch.stack([picked, exponentials.sum(-1)])
        all_reduce(both, group)
        ctx.save_for_backward(exponentials / both[1, ..., None])
        return both[1].log() - both[0]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (softmax,) = ctx.saved_tensors
        return (softmax - ctx.hit.double()) * grad[..., None], None, None, None


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    return CrossEntropy.apply(logits_part, targets, first, group)
'''),
    Right("variant_pairs", "left to autograd, with the pair of identity and all-reduce", '''
import torch

from course_lib.comm import Group, all_reduce
from course_lib.comm import reduce_from_group


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    peak = logits_part.detach().amax(-1)
    all_reduce(peak, group, "max")
    total = reduce_from_group((logits_part - peak.unsqueeze(-1)).exp().sum(-1), group)
    local = targets - first
    mine = (local >= 0) & (local < logits_part.shape[-1])
    place = local.masked_fill(~mine, 0).unsqueeze(-1)
    picked = logits_part.gather(-1, place).squeeze(-1) - peak
    return total.log() - reduce_from_group(picked * mine, group)
'''),
    Right("variant_rescaled", "sums relative to each rank's own maximum, rescaled to the largest", '''
from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, first: int, group: Group
    ) -> torch.Tensor:
        own = logits.amax(-1)
        peak = own.clone()
        all_reduce(peak, group, "max")
        total = (logits - own.unsqueeze(-1)).exp().sum(-1) * (own - peak).exp()
        all_reduce(total, group)
        normalizer = peak + total.log()
        ctx.save_for_backward(logits, targets, normalizer)
        ctx.first = first
        target = logits.new_zeros(targets.shape)
        mine = (targets >= first) & (targets < first + logits.shape[-1])
        target[mine] = logits[mine, targets[mine] - first]
        all_reduce(target, group)
        return normalizer - target

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, targets, normalizer = ctx.saved_tensors
        slope = (logits - normalizer.unsqueeze(-1)).exp()
        mine = (targets >= ctx.first) & (targets < ctx.first + logits.shape[-1])
        slope[mine, targets[mine] - ctx.first] -= 1
        return slope * grad.unsqueeze(-1), None, None, None


def vocab_parallel_cross_entropy(
    logits_part: torch.Tensor, targets: torch.Tensor, vocabulary: int, group: Group
) -> torch.Tensor:
    first = int(torch.arange(vocabulary).tensor_split(group.size)[group.index][0])
    return CrossEntropy.apply(logits_part, targets, first, group)
'''),
]
