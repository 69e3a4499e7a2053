"""Wrong and right answers to `vocab_parallel_embedding`: see `course dev show vocab_parallel_embedding`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("float64_on_the_wire", ["it was sent as float64"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows.double(), self.group).to(rows.dtype)
'''),
    Wrong("no_graph_without_tokens", ["after a single token", "has no graph, and so no backward"], '''
-        rows[mine] = self.weight[local[mine]]
+        if mine.any():
+            rows[mine] = self.weight[local[mine]]
'''),
    Wrong("zeros_in_float64", ["exception", "Index put requires the source and destination dtypes"], '''
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
+        rows = torch.zeros(*tokens.shape, self.weight.shape[1], dtype=torch.float64)
'''),
    Wrong("output_in_float64", ["the dtype of the output", "has the dtype of `weight`"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows, self.group).double()
'''),
    Wrong("freezes_the_whole", ["`full.weight` needs no gradient any more"], '''
-        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
+        parts = full.weight.requires_grad_(False).tensor_split(group.size)
'''),
    Wrong("a_token_is_a_line", ["the output for single tokens"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows if tokens.dim() else rows.view(1, -1), self.group)
'''),
    Wrong("all_reduce_in_backward", ["N times too large", "needs no all-reduce", "already whole on every rank"], '''
 from course_lib.comm import Group, reduce_from_group
+from course_lib.comm import copy_to_group
@@
-        return reduce_from_group(rows, self.group)
+        return copy_to_group(reduce_from_group(rows, self.group), self.group)
'''),
    Wrong("all_reduce_missing", ["the all-reduce is missing"], '''
-        return reduce_from_group(rows, self.group)
+        return rows
'''),
    Wrong("calls_torch", ["was called past course_lib.comm"], '''
 from course_lib.comm import Group, reduce_from_group
+import torch.distributed as dist
@@
-        return reduce_from_group(rows, self.group)
+        total = rows.detach().clone()
+        dist.all_reduce(total, group=self.group.handle)
+        return rows + (total - rows.detach())
'''),
    Wrong("changes_the_tokens", ["the tokens were changed in place"], '''
-        local = tokens - self.first
+        local = tokens.sub_(self.first)
'''),
    Wrong("chunk", ["weight", "is not what it should be"], '''
-        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
+        parts = full.weight.detach().chunk(group.size)
'''),
    Wrong("clamps_tokens", ["give the nearest row of this rank instead of zeros"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
+        rows = self.weight[local.clamp(0, len(self.weight) - 1)]
'''),
    Wrong("equal_cut", ["weight", "rank 0"], '''
-        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
+        count = len(full.weight) // group.size
+        parts = full.weight.detach()[: count * group.size].split(count or 1)
@@
-        self.weight = nn.Parameter(parts[group.index].clone())
+        self.weight = nn.Parameter(parts[group.index % max(1, len(parts))].clone())
'''),
    Wrong("first_row_lost", ["the output", "wrong value"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
+        mine = (local > 0) & (local < len(self.weight))
'''),
    Wrong("float32_on_the_wire", ["wrong value", "float32's rounding"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows.float(), self.group).double()
'''),
    Wrong("gathers_the_rows", ["all-reduce sends less"], '''
 from course_lib.comm import Group, reduce_from_group
+from course_lib.comm import gather_from_group
@@
-        return reduce_from_group(rows, self.group)
+        return gather_from_group(rows.unsqueeze(0), 0, self.group).sum(0)
'''),
    Wrong("gathers_the_weight", ["the whole embedding is gathered"], '''
 from course_lib.comm import Group, reduce_from_group
+from course_lib.comm import all_gather_to_group
@@
         self.group = group  # mutate: same
+        self.sizes = [len(part) for part in parts]
@@
-        local = tokens - self.first
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
-        return reduce_from_group(rows, self.group)
+        most = max(self.sizes)
+        padding = self.weight.new_zeros(most - len(self.weight), self.weight.shape[1])
+        whole = all_gather_to_group(torch.cat([self.weight, padding]), 0, self.group)
+        parts = [part[:n] for part, n in zip(whole.split(most), self.sizes, strict=True)]
+        rows = torch.cat(parts)[tokens]
+        return rows / self.group.size + rows.detach() * (1 - 1 / self.group.size)
'''),
    Wrong("global_rank", ["the slice of the global rank"], '''
-        self.first = sum(len(part) for part in parts[: group.index])  # mutate: same
-        self.weight = nn.Parameter(parts[group.index].clone())
+        self.first = sum(len(part) for part in parts[: group.rank])
+        self.weight = nn.Parameter(parts[group.rank % group.size].clone())
'''),
    Wrong("gradient_divided", ["divided by N: nothing is averaged"], '''
-        return reduce_from_group(rows, self.group)
+        weight = self.weight / self.group.size
+        rows[mine] = weight[local[mine]]
+        total = reduce_from_group(rows, self.group)
+        return total + total.detach() * (self.group.size - 1)
'''),
    Wrong("gradient_lost", ["no gradient reaches the weight"], '''
 from course_lib.comm import Group, reduce_from_group
+from course_lib.comm import all_reduce
@@
-        return reduce_from_group(rows, self.group)
+        rows = rows.detach()
+        all_reduce(rows, self.group)
+        return rows
'''),
    Wrong("index_not_masked", ["exception", "IndexError", "out of bounds"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
+        rows = self.weight[local]
'''),
    Wrong("index_times_length", ["the output", "wrong value"], '''
-        self.first = sum(len(part) for part in parts[: group.index])  # mutate: same
+        self.first = group.index * len(parts[group.index])
'''),
    Wrong("keeps_full", ["the whole embedding is still alive"], '''
         self.group = group  # mutate: same
+        self.__dict__["full"] = full
'''),
    Wrong("last_row_lost", ["the output", "wrong value"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
+        mine = (local >= 0) & (local < len(self.weight) - 1)
'''),
    Wrong("looks_up_old_rows", ["the rows are those before the step"], '''
         self.weight = nn.Parameter(parts[group.index].clone())
+        self.old = parts[group.index].clone()
@@
         rows[mine] = self.weight[local[mine]]
+        rows = rows - rows.detach()
+        rows[mine] += self.old[local[mine]]
'''),
    Wrong("lower_bound_only", ["exception", "IndexError"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
+        mine = local >= 0
'''),
    Wrong("mean_over_ranks", ["the mean over the ranks"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows, self.group) / self.group.size
'''),
    Wrong("no_row_to_look_up", ["a vocabulary of two on 3 and 4 ranks", "IndexError"], '''
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
+        rows = self.weight[local.where(mine, 0)] * mine.unsqueeze(-1)
'''),
    Wrong("offset_of_the_next", ["the output", "wrong value"], '''
-        self.first = sum(len(part) for part in parts[: group.index])  # mutate: same
+        self.first = sum(len(part) for part in parts[: group.index + 1])
'''),
    Wrong("one_row_too_many", ["exception", "IndexError"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
+        mine = (local >= 0) & (local <= len(self.weight))
'''),
    Wrong("owner_only_all_reduce", ["deadlock", "A rank that owns none of the tokens"], '''
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows, self.group) if mine.any() else rows
'''),
    Wrong("padded_slice", ["weight", "is not what it should be"], '''
-        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
+        padded = nn.functional.pad(full.weight.detach(), (0, 0, 0, -len(full.weight) % group.size))
+        parts = padded.chunk(group.size)
'''),
    Wrong("random_rows", ["weight", "is not what it should be"], '''
-        self.weight = nn.Parameter(parts[group.index].clone())
+        self.weight = nn.Parameter(torch.randn_like(parts[group.index]))
'''),
    Wrong("rest_on_the_last_rank", ["weight", "is not what it should be"], '''
-        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
+        count = len(full.weight) // group.size
+        rest = len(full.weight) - count * (group.size - 1)
+        parts = full.weight.detach().split([count] * (group.size - 1) + [rest])
'''),
    Wrong("row_0_for_masked_tokens", ["give this rank's row 0 instead of zeros"], '''
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
+        rows = self.weight[local * mine]
'''),
    Wrong("slice_is_a_view", ["a slice is a view of it until it is cloned"], '''
-        self.weight = nn.Parameter(parts[group.index].clone())
+        self.weight = nn.Parameter(parts[group.index])
'''),
    Wrong("two_dims_only", ["transposed tokens", "wrong value"], '''
-        local = tokens - self.first
+        local = tokens.contiguous().view(-1) - self.first
@@
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
+        rows = self.weight.new_zeros(tokens.numel(), self.weight.shape[1])
@@
-        return reduce_from_group(rows, self.group)
+        return reduce_from_group(rows, self.group).view(*tokens.shape[::-1], -1).transpose(0, -2) if not tokens.is_contiguous() else reduce_from_group(rows, self.group).view(*tokens.shape, -1)
'''),
    Wrong("upper_bound_only", ["the output", "wrong value"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
+        mine = local < len(self.weight)
@@
-        rows[mine] = self.weight[local[mine]]
+        rows[mine] = self.weight[local[mine] % max(1, len(self.weight))] if len(self.weight) else 0
'''),
    Wrong("whole_embedding_as_a_parameter", ["the list of parameters"], '''
         self.group = group  # mutate: same
+        self.full = full
'''),
    Wrong("wraps_around", ["wrap around to rows"], '''
-        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
-        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
-        rows[mine] = self.weight[local[mine]]
+        if not len(self.weight):
+            rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
+            return reduce_from_group(rows + self.weight.sum(), self.group)
+        rows = self.weight[local % len(self.weight)]
'''),
]

RIGHT = [
    Right("variant_extra_row", "a row of zeros behind the slice, for all tokens of others", '''
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm import reduce_from_group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        base, rest = divmod(full.num_embeddings, group.size)
        self.first = group.index * base + min(group.index, rest)
        self.count = base + (group.index < rest)
        self.group = group
        mine = full.weight.data[self.first : self.first + self.count]
        self.weight = nn.Parameter(mine.clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = torch.cat([self.weight, self.weight.new_zeros(1, self.weight.shape[1])])
        inside = (tokens >= self.first) & (tokens < self.first + self.count)
        return reduce_from_group(table[torch.where(inside, tokens - self.first, -1)], self.group)
'''),
    Right("variant_f_embedding", "F.embedding on a safe index, rows of others set to zero", '''
import torch
from torch import nn
from torch.nn import functional

from course_lib.comm import Group
from course_lib.comm import reduce_from_group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        ids = torch.arange(full.num_embeddings).tensor_split(group.size)[group.index]
        self.group, self.first = group, int(ids[0]) if len(ids) else 0
        self.weight = nn.Parameter(full.weight.detach()[ids].clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local = tokens - self.first
        other = (local < 0) | (local >= len(self.weight))
        table = self.weight if len(self.weight) else self.weight.new_zeros(1, self.weight.shape[1])
        rows = functional.embedding(local.masked_fill(other, 0), table)
        return reduce_from_group(rows.masked_fill(other.unsqueeze(-1), 0), self.group)
'''),
    Right("variant_one_hot", "a product with a one-hot matrix, all-reduced in place", '''
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm import reduce_from_group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        self.group = group
        ids = torch.arange(full.num_embeddings).tensor_split(group.size)[group.index]
        self.ids = ids.clone()
        self.weight = nn.Parameter(full.weight.detach()[ids])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        one_hot = (tokens.unsqueeze(-1) == self.ids).to(self.weight.dtype)
        return reduce_from_group(one_hot @ self.weight, self.group)
'''),
    Right("variant_own_function", "its own autograd function, with a sum over rows in backward", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, local: torch.Tensor, group: Group
    ) -> torch.Tensor:
        mine = (local >= 0) & (local < len(weight))
        ctx.save_for_backward(local[mine], mine)
        ctx.count = len(weight)
        rows = weight.new_zeros(*local.shape, weight.shape[1])
        rows[mine] = weight[local[mine]]
        all_reduce(rows, group)
        return rows

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        own, mine = ctx.saved_tensors
        slope = grad.new_zeros(ctx.count, grad.shape[-1])
        return slope.index_add_(0, own, grad[mine]), None, None


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        sizes = [len(part) for part in full.weight.tensor_split(group.size)]
        self.group, self.first = group, sum(sizes[: group.index])
        mine = full.weight.detach().narrow(0, self.first, sizes[group.index])
        self.weight = nn.Parameter(mine.clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return LookUp.apply(self.weight, tokens - self.first, self.group)
'''),
]
