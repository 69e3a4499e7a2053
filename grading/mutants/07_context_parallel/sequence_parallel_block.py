"""Wrong and right answers to `sequence_parallel_block`: see `course dev show sequence_parallel_block`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("sums_with_gradients_alone", ["the output without gradients", "the parts are not added up"], '''
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        if torch.is_grad_enabled():
+            y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        else:
+            y_BtD = x_BtD + part_BTD.chunk(group.size, 1)[group.index]
'''),
    Wrong("all_reduce_then_cut", ["an all-reduce whose result is then cut: a reduce-scatter"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import reduce_from_group, split_to_group
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        y_BtD = x_BtD + split_to_group(reduce_from_group(part_BTD, group), 1, group)
'''),
    Wrong("bias_gradient_not_summed", ["bias.grad", "of this rank's tokens alone: sum it over the ranks"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return y_BtD if self.bias is None else y_BtD + self.bias
'''),
    Wrong("bias_n_times", ["N times: add it once"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
+        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down, self.bias)
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return y_BtD
'''),
    Wrong("bias_on_rank_0", ["deadlock", "all_reduce"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return y_BtD if self.bias is None or group.index else y_BtD + copy_to_group(self.bias, group)
'''),
    Wrong("both_sums", ["summed twice", "both an all-reduce and a reduce-scatter"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import reduce_from_group
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        y_BtD = x_BtD + reduce_scatter_in_group(reduce_from_group(part_BTD, group), 1, group)
'''),
    Wrong("f_as_well", ["x.grad"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
         norm, group = self.norm, self.group
+        x_BtD = copy_to_group(x_BtD, group)
'''),
    Wrong("gather_only_cuts_back", ["the gather's backward only cuts", "half as many: the gather's backward sends nothing"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import gather_from_group
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
+        whole_BTD = gather_from_group(normed_BtD, 1, group)
'''),
    Wrong("gathers_the_batch", ["exception"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
+        whole_BTD = all_gather_to_group(normed_BtD, 0, group)
'''),
    Wrong("mean_instead_of_sum", ["the mean of the ranks' parts: it must be their sum"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group) / group.size
'''),
    Wrong("mean_of_replicated_gradients", ["the mean over the ranks: it must be their sum"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
         weight, bias = copy_to_group(norm.weight, group), copy_to_group(norm.bias, group)
+        for replicated in (weight, bias):
+            if replicated.requires_grad:
+                replicated.register_hook(lambda grad: grad / group.size)
'''),
    Wrong("no_reduce", ["the part of this rank's F alone: the parts are not added up"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import split_to_group
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        y_BtD = x_BtD + split_to_group(part_BTD, 1, group)
'''),
    Wrong("norm_after_the_gather", ["norm works on all tokens", "before the gather"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        normed_BtD = F.layer_norm(x_BtD, norm.normalized_shape, weight, bias, norm.eps)
-        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
+        whole_BTD = all_gather_to_group(x_BtD, 1, group)
+        whole_BTD = F.layer_norm(whole_BTD, norm.normalized_shape, weight, bias, norm.eps)
'''),
    Wrong("norm_gradients_not_summed", ["norm.weight.grad", "of this rank's tokens alone: sum it over the ranks", "the sums of the gradients of norm and bias are missing"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        weight, bias = copy_to_group(norm.weight, group), copy_to_group(norm.bias, group)
-        normed_BtD = F.layer_norm(x_BtD, norm.normalized_shape, weight, bias, norm.eps)
+        normed_BtD = norm(x_BtD)
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return y_BtD if self.bias is None else y_BtD + self.bias
'''),
    Wrong("parts_must_be_equal", ["the shape of `up`"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().split(up.out_features // group.size)
+        columns = down.weight.detach().split(up.out_features // group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
'''),
    Wrong("sums_every_gradient", ["up.grad", "summed over the ranks", "but each has its own part of F"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
+        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, copy_to_group(self.up, group))), copy_to_group(self.down, group))
'''),
    Wrong("sums_the_grad_itself", ["the first backward's gradient was summed over the ranks again"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import all_reduce
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
+        for replicated in (norm.weight, norm.bias, self.bias):
+            if replicated is not None:
+                replicated.register_post_accumulate_grad_hook(self.reduce)
@@
-        weight, bias = copy_to_group(norm.weight, group), copy_to_group(norm.bias, group)
+        weight, bias = norm.weight, norm.bias
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return y_BtD if self.bias is None else y_BtD + self.bias
+
+    def reduce(self, weight: torch.Tensor) -> None:
+        all_reduce(weight.grad, self.group)
'''),
    Wrong("views_keep_the_whole", ["a view keeps the whole weight alive"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index])
+        self.down = nn.Parameter(columns[group.index])
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach())
'''),
    Wrong("whole_matrices", ["this is all of it"], '''
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        self.up = nn.Parameter(up.weight.detach().clone())
+        self.down = nn.Parameter(down.weight.detach().clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
+        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group) / group.size
'''),
    Wrong("whole_output", ["every rank has the whole sequence: reduce-scatter after `down`"], '''
 from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group
+from course_lib.comm import gather_from_group
@@
-        rows = up.weight.tensor_split(group.size)[group.index]  # mutate: same
-        columns = down.weight.tensor_split(group.size, 1)[group.index]
-        self.up, self.down = (  # mutate: same
-            nn.Parameter(cut.detach().clone())  # mutate: same
-            for cut in (rows, columns)
-        )
-        self.bias = down.bias
+        rows = up.weight.detach().tensor_split(group.size)
+        columns = down.weight.detach().tensor_split(group.size, 1)
+        self.up = nn.Parameter(rows[group.index].clone())
+        self.down = nn.Parameter(columns[group.index].clone())
+        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
@@
-        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        y_BtD = y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
+        return gather_from_group(y_BtD, 1, group)
'''),
]

RIGHT = [
    Right("variant_along_the_batch", "gathered and scattered along dim 0: to a feed-forward block, all tokens are alike", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm import all_gather_to_group, copy_to_group, reduce_scatter_in_group


class SequenceParallelBlock(nn.Module):
    """This rank's part of a feed-forward block.

    Args:
        norm: with weight and bias over D; the same on every rank.
        up: D to F, without bias; the same on every rank.
        down: F to D, with or without bias; the same on every rank.
        group: the N ranks.

    Attributes:
        norm: the module that was given.
        up: [F/N, D].
        down: [D, F/N].
        bias: [D], or None.
    """

    def __init__(self, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear, group: Group) -> None:
        super().__init__()
        self.norm, self.group = norm, group
        rows = up.weight.detach().tensor_split(group.size)
        columns = down.weight.detach().tensor_split(group.size, 1)
        self.up = nn.Parameter(rows[group.index].clone())
        self.down = nn.Parameter(columns[group.index].clone())
        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """This rank's shard [B, T/N, D] of the sequence, to the same."""
        norm, group = self.norm, self.group
        weight, bias = copy_to_group(norm.weight, group), copy_to_group(norm.bias, group)
        normed_BtD = F.layer_norm(x_BtD, norm.normalized_shape, weight, bias, norm.eps)
        whole_BTD = all_gather_to_group(normed_BtD, 0, group)
        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 0, group)
        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
'''),
    Right("variant_functional_call", "the norm called with one copy of all replicated parameters, one all-reduce", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm import all_gather_to_group, copy_to_group, reduce_scatter_in_group


class SequenceParallelBlock(nn.Module):
    """This rank's part of a feed-forward block.

    Args:
        norm: with weight and bias over D; the same on every rank.
        up: D to F, without bias; the same on every rank.
        down: F to D, with or without bias; the same on every rank.
        group: the N ranks.

    Attributes:
        norm: the module that was given.
        up: [F/N, D].
        down: [D, F/N].
        bias: [D], or None.
    """

    def __init__(self, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear, group: Group) -> None:
        super().__init__()
        self.norm, self.group = norm, group
        rows = up.weight.detach().tensor_split(group.size)
        columns = down.weight.detach().tensor_split(group.size, 1)
        self.up = nn.Parameter(rows[group.index].clone())
        self.down = nn.Parameter(columns[group.index].clone())
        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """This rank's shard [B, T/N, D] of the sequence, to the same."""
        norm, group = self.norm, self.group
        small = [norm.weight, norm.bias] + ([] if self.bias is None else [self.bias])
        copies = copy_to_group(torch.cat(small), group).split(len(norm.weight))
        named = {"weight": copies[0], "bias": copies[1]}
        normed_BtD = torch.func.functional_call(norm, named, x_BtD)
        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
        return y_BtD if self.bias is None else y_BtD + copies[2]
'''),
    Right("variant_hooks", "the module itself, and hooks that sum the replicated gradients", '''
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.comm import all_gather_to_group, copy_to_group, reduce_scatter_in_group


class SequenceParallelBlock(nn.Module):
    """This rank's part of a feed-forward block.

    Args:
        norm: with weight and bias over D; the same on every rank.
        up: D to F, without bias; the same on every rank.
        down: F to D, with or without bias; the same on every rank.
        group: the N ranks.

    Attributes:
        norm: the module that was given.
        up: [F/N, D].
        down: [D, F/N].
        bias: [D], or None.
    """

    def __init__(self, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear, group: Group) -> None:
        super().__init__()
        self.norm, self.group = norm, group
        rows = up.weight.detach().tensor_split(group.size)
        columns = down.weight.detach().tensor_split(group.size, 1)
        self.up = nn.Parameter(rows[group.index].clone())
        self.down = nn.Parameter(columns[group.index].clone())
        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())
        for replicated in (norm.weight, norm.bias, self.bias):
            if replicated is not None:
                replicated.register_hook(self.summed)

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """This rank's shard [B, T/N, D] of the sequence, to the same."""
        norm, group = self.norm, self.group
        normed_BtD = norm(x_BtD)
        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group)
        return y_BtD if self.bias is None else y_BtD + self.bias

    def summed(self, grad: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks."""
        total = grad.clone()
        all_reduce(total, self.group)
        return total
'''),
]
