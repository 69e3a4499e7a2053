"""Wrong and right answers to `global_loss_and_tokens`: see `course dev show global_loss_and_tokens`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_over_world", ["over ranks that differ in tp", "leave tp out", "counted pp times"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh.world, mesh.world
'''),
    Wrong("averaged", ["divided by the number of ranks of dp × ep × cp as well"], '''
-    all_reduce(total, told)  # stages without losses add 0, and learn the sum
+    all_reduce(total, data, "avg")
+    all_reduce(total, mesh["pp"])
'''),
    Wrong("called_by_last_stage", ["deadlock", "Every rank calls every collective of its groups"], '''
-    all_reduce(total, told)  # stages without losses add 0, and learn the sum
+    if losses:
+        all_reduce(total, told)  # stages without losses add 0, and learn the sum
'''),
    Wrong("cp_forgotten", ["ranks of cp have other tokens: they were left out"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "ep"], mesh["pp", "dp", "ep"]
'''),
    Wrong("divided_by_dp", ["divided by the number of ranks of dp × ep × cp as well"], '''
-    return total / tokens, int(tokens)
+    return total / tokens / data.size, int(tokens)
'''),
    Wrong("divided_by_micro", ["divided by the number of micro-batches as well"], '''
-    return total / tokens, int(tokens)
+    return total / tokens / len(targets), int(tokens)
'''),
    Wrong("ep_forgotten", ["ranks of ep have other tokens: they were left out"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "cp"], mesh["pp", "dp", "cp"]
'''),
    Wrong("float32_count", ["counted in float32"], '''
-    tokens = torch.tensor(counted)
+    tokens = torch.tensor(float(counted))
'''),
    Wrong("float32_loss", ["float32"], '''
-    total = torch.zeros((), dtype=torch.float64)
+    total = torch.zeros(())
@@
-    return total / tokens, int(tokens)
+    return total.double() / tokens, int(tokens)
'''),
    Wrong("from_last_index", ["the ranks with the last index on pp were taken"], '''
 from course_lib.comm import Mesh, all_reduce
+from course_lib.comm import broadcast
@@
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
+    data, pp = mesh["dp", "ep", "cp"], mesh["pp"]
+    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
@@
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
-    all_reduce(total, told)  # stages without losses add 0, and learn the sum
+    total = sum((loss.double() for loss in losses), torch.zeros((), dtype=torch.float64))
+    all_reduce(total, data)
+    broadcast(total, pp.size - 1, pp)
'''),
    Wrong("ignored_counted", ["ignored targets (-100) were counted"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
+    counted = sum(target.numel() for target in targets)
'''),
    Wrong("in_place", ["the losses that were given have changed"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
+    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
@@
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
+    total = losses[0] if losses else torch.zeros((), dtype=torch.float64)
+    for loss in losses[1:]:
+        total += loss.double()
'''),
    Wrong("int32_result_tensor", ["is not an int"], '''
-    return total / tokens, int(tokens)
+    return total / tokens, tokens
'''),
    Wrong("last_stage_learns_both", ["the number of tokens", "only the last stage has learnt it"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
+    data = mesh["dp", "ep", "cp"]
+    if not losses:
+        return torch.zeros((), dtype=torch.float64), 0
+    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
@@
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
-    all_reduce(total, told)  # stages without losses add 0, and learn the sum
+    total = torch.stack(list(losses)).double().sum()
+    all_reduce(total, data)
'''),
    Wrong("last_stage_only", ["only the last stage has learnt it"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "ep", "cp"], mesh["dp", "ep", "cp"]
'''),
    Wrong("loss_over_tp", ["they were added up tp times", "leave tp out"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp", "tp"]
'''),
    Wrong("loss_without_cp", ["the losses of ranks of cp were left out"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep"]
'''),
    Wrong("mean_of_means_where_any", ["of those that have a token"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
+    counts = [int((target != IGNORED).sum()) for target in targets]
+    tokens = torch.tensor(sum(counts))
+    total = torch.zeros((), dtype=torch.float64)
+    for loss, count in zip(losses, counts):
+        total += loss.double() / max(1, count) / len(counts)
@@
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
@@
-    return total / tokens, int(tokens)
+    return total / data.size, int(tokens)
'''),
    Wrong("mean_of_micro_means", ["a mean of the micro-batches' means", "tokens of a short one weigh more"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
+    counts = [int((target != IGNORED).sum()) for target in targets]
+    tokens = torch.tensor(sum(counts))
+    total = torch.zeros((), dtype=torch.float64)
+    for loss, count in zip(losses, counts):
+        total += loss.double() / count / len(counts)
@@
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
@@
-    return total / tokens, int(tokens)
+    return total / data.size, int(tokens)
'''),
    Wrong("mean_of_rank_means", ["a mean of the ranks' means"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
-    all_reduce(tokens, data)  # mutate: same
+    counts = [int((target != IGNORED).sum()) for target in targets]
+    tokens = torch.tensor(sum(counts))
@@
-        total += loss.to(total)
+        total += loss.double() / tokens
+    all_reduce(tokens, data)
@@
-    return total / tokens, int(tokens)
+    return total / data.size, int(tokens)
'''),
    Wrong("not_divided", ["the sum of the losses: divide"], '''
-    return total / tokens, int(tokens)
+    return total, int(tokens)
'''),
    Wrong("own_tokens", ["ranks of dp have other tokens: they were left out"], '''
-    all_reduce(tokens, data)  # mutate: same
'''),
    Wrong("past_comm", ["past course_lib.comm"], '''
-    all_reduce(tokens, data)  # mutate: same
+    torch.distributed.all_reduce(tokens, group=data.handle)
'''),
    Wrong("targets_travel", ["the number of bytes that go into collectives", "add up over the micro-batches first"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
-    tokens = torch.tensor(counted)
-    all_reduce(tokens, data)  # mutate: same
-    total = torch.zeros((), dtype=torch.float64)
-    for loss in losses:
-        total += loss.to(total)
-    all_reduce(total, told)  # stages without losses add 0, and learn the sum
-    return total / tokens, int(tokens)
+    told = mesh["pp", "dp", "ep", "cp"]
+    counted, total = 0, torch.zeros((), dtype=torch.float64)
+    for number, target in enumerate(targets):
+        count = (target != IGNORED).sum() if losses else torch.tensor(0)
+        all_reduce(count, told)
+        counted += int(count)
+        loss = losses[number].double() if losses else torch.tensor(0.0, dtype=torch.float64)
+        loss = loss.clone()
+        all_reduce(loss, told)
+        total += loss
+    return total / counted, counted
'''),
    Wrong("tokens_over_pp", ["every stage has the same targets", "counted pp times"], '''
-    all_reduce(tokens, data)  # mutate: same
+    all_reduce(tokens, told)
'''),
    Wrong("tokens_over_tp", ["ranks of tp have the same tokens", "counted tp times", "the sum is right"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["dp", "ep", "cp", "tp"], mesh["pp", "dp", "ep", "cp"]
'''),
    Wrong("tokens_over_world", ["the tokens were counted pp times"], '''
-    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
+    data, told = mesh["pp", "dp", "ep", "cp", "tp"], mesh["pp", "dp", "ep", "cp"]
'''),
    Wrong("wrong_dtype", ["has the wrong dtype"], '''
-    total = torch.zeros((), dtype=torch.float64)
+    total = torch.zeros(())
'''),
    Wrong("token_0_is_padding", ["targets of 0 were not counted"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
+    counted = sum(int((target > 0).sum()) for target in targets)
'''),
    Wrong("without_infinite_ones", ["the loss is finite"], '''
-        total += loss.to(total)
+        total += loss.to(total).nan_to_num(posinf=0.0)
'''),
    Wrong("empties_the_targets", ["the targets that were given have changed", "leave the list"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
+    counted = 0
+    while targets:
+        counted += int((targets.pop() != IGNORED).sum())
'''),
    Wrong("targets_in_place", ["the targets that were given have changed"], '''
-    counted = sum(int((target != IGNORED).sum()) for target in targets)
+    counted = 0
+    for target in targets:
+        counted += int((target != IGNORED).sum())
+        target.clamp_(min=0)
'''),
]

RIGHT = [
    Right("variant_axis_by_axis", "data ranks first, then the stages tell each other", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    data, pp = mesh["dp", "ep", "cp"], mesh["pp"]
    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
    all_reduce(tokens, data)
    total = sum((loss.double() for loss in losses), torch.zeros((), dtype=torch.float64))
    if losses:
        all_reduce(total, data)
    all_reduce(total, pp)
    return total / tokens, int(tokens)
'''),
    Right("variant_over_tp_is_apart", "sums over pp before dp, ep and cp, one after the other; each group larger than 1", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    tokens = torch.tensor(sum(int((target != IGNORED).sum()) for target in targets))
    total = torch.zeros(1, dtype=torch.float64)
    for loss in losses:
        total[0] += loss
    if mesh["pp"].size > 1:
        all_reduce(total, mesh["pp"])
    for axis in ("dp", "ep", "cp"):
        if mesh[axis].size > 1:
            all_reduce(total, mesh[axis])
            all_reduce(tokens, mesh[axis])
    return total[0] / tokens, int(tokens)
'''),
    Right("variant_packed", "one message of 16 bytes, in which only the last stage counts", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    both = torch.zeros(2, dtype=torch.float64)
    for loss, target in zip(losses, targets):
        both += torch.stack([loss.double(), (target != IGNORED).sum().double()])
    all_reduce(both, mesh["pp", "dp", "ep", "cp"])
    return both[0] / both[1], int(both[1])
'''),
    Right("variant_told_by_max", "the stages keep the largest", '''
from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    data, pp = mesh["dp", "ep", "cp"], mesh["pp"]
    own = torch.tensor([sum(int((target != IGNORED).sum()) for target in targets)])
    all_reduce(own, data)
    tokens = int(own)
    mean = torch.full((), -torch.inf, dtype=torch.float64)
    if losses:
        mean = torch.stack([loss.double() for loss in losses]).sum() / tokens
        all_reduce(mean, data)
    all_reduce(mean, pp, "max")
    return mean, tokens
'''),
]
