"""Wrong and right answers to `column_parallel_linear`: see `course dev show column_parallel_linear`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bf16_on_the_wire_as_float32", ["it was sent as float32"], '''
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        wide = x.to(torch.promote_types(x.dtype, torch.float32))
+        return linear(copy_to_group(wide, self.group).to(x.dtype), self.weight, self.bias)
'''),
    Wrong("broadcasts_the_full_layer", ["the full layer is the same on all ranks already"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import broadcast
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        for tensor in full.parameters():
+            broadcast(tensor.detach(), 0, group)
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("counts_by_rank", ["these are the rows of another rank: count by group.index"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.rank % group.size]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.rank % group.size]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("cut_along_the_inputs", ["has the wrong shape", "along the outputs"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size, 1)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("cuts_the_full_layer_itself", ["others may use it as well: copy what you take"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        full.weight.data = rows.clone()
+        self.weight = full.weight
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("empty_slice_stays_away", ["deadlock", "including one that has no row of the weight"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
         """
+        if self.weight.shape[0] == 0:
+            return linear(x, self.weight, self.bias)
'''),
    Wrong("float32_on_the_wire", ["it was sent as float32"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import all_reduce
+from typing import Any
@@
+class Summed(torch.autograd.Function):
+    @staticmethod
+    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
+        ctx.group = group
+        return x.view_as(x)
+
+    @staticmethod
+    def backward(ctx: Any, grad: torch.Tensor) -> Any:
+        total = grad.float()
+        all_reduce(total, ctx.group)
+        return total.to(grad.dtype), None
 class ColumnParallelLinear(nn.Module):
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(Summed.apply(x, self.group), self.weight, self.bias)
'''),
    Wrong("forgets_the_bias", ["the bias is missing"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(copy_to_group(x, self.group), self.weight)
'''),
    Wrong("forgets_the_sum", ["of this rank's outputs alone: the sum over the ranks is missing", "the gradient of the input is not summed over the ranks"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(x, self.weight, self.bias)
'''),
    Wrong("g_for_f", ["the input was summed over the ranks", "an all-reduce belongs in the backward alone"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import reduce_from_group
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(reduce_from_group(x, self.group), self.weight, self.bias)
'''),
    Wrong("gathers_the_output", ["the outputs were gathered: leave each rank its slice", "has the wrong shape"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import gather_from_group
+from torch.nn.functional import pad
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
+        self.counts = [len(part) for part in full.weight.tensor_split(group.size)]
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        y = linear(copy_to_group(x, self.group), self.weight, self.bias)
+        most = self.counts[0]
+        whole = gather_from_group(pad(y, (0, most - y.shape[-1])), -1, self.group)
+        parts = whole.split(most, -1)
+        return torch.cat([p[..., :n] for p, n in zip(parts, self.counts, strict=True)], -1)
'''),
    Wrong("keeps_a_view", ["the whole weight is alive: a view keeps all of its storage"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows)
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("keeps_the_full_layer", ["the whole weight is alive", "a reference to `full`"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        self.origin = [full]
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("keeps_the_whole_bias", ["bias", "has the wrong shape"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            self.bias = nn.Parameter(full.bias.detach().clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        own = self.bias if self.bias is None else self.bias.tensor_split(self.group.size)[self.group.index]
+        return linear(copy_to_group(x, self.group), self.weight, own)
'''),
    Wrong("leaves_the_graph", ["the output does not depend on it in the autograd graph"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(copy_to_group(x.detach(), self.group), self.weight, self.bias)
'''),
    Wrong("mean_of_the_gradients", ["the mean over the ranks: it must be the sum"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import all_reduce
+from typing import Any
@@
+class Summed(torch.autograd.Function):
+    @staticmethod
+    def forward(ctx: Any, x: torch.Tensor, group: Group) -> torch.Tensor:
+        ctx.group = group
+        return x.view_as(x)
+
+    @staticmethod
+    def backward(ctx: Any, grad: torch.Tensor) -> Any:
+        total = grad.clone()
+        all_reduce(total, ctx.group, "avg")
+        return total, None
 class ColumnParallelLinear(nn.Module):
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(Summed.apply(x, self.group), self.weight, self.bias)
'''),
    Wrong("must_divide", ["has the wrong shape", "`tensor_split` along the outputs"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        count = full.out_features // group.size
+        mine = slice(group.index * count, (group.index + 1) * count)
+        rows = full.weight.detach()[mine]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.detach()[mine]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("no_parameters", ["no optimizer finds it: make it an nn.Parameter"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = rows.clone().requires_grad_()
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = own.clone().requires_grad_()
'''),
    Wrong("random_initialisation", ["A new layer would have random numbers", "has the wrong value"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
-        self.bias = None
-        if full.bias is not None:
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+        count = full.weight.tensor_split(group.size)[group.index].shape[0]
+        inner = nn.Linear(full.in_features, count, full.bias is not None, dtype=full.weight.dtype)
+        self.weight, self.bias = inner.weight, inner.bias
'''),
    Wrong("reduces_the_weights_gradient", ["weight.grad", "more than the input's gradient: weight and bias belong to this rank alone"], '''
 from course_lib.comm import Group, copy_to_group
+from course_lib.comm import all_reduce
@@
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
+        if full.out_features % group.size == 0:
+            self.weight.register_hook(self._summed)
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
+
+    def _summed(self, grad: torch.Tensor) -> torch.Tensor:
+        total = grad.clone()
+        all_reduce(total, self.group)
+        return total
'''),
    Wrong("registers_the_full_layer", ["the number of parameters beside weight and bias", "the whole weight is alive"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        self.full = full
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
'''),
    Wrong("shares_the_bias", ["a view keeps all of its storage: copy the slice of the bias too"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own)
'''),
    Wrong("zeros_for_no_bias", ["the full layer has none", "this one's must be None"], '''
-        self.bias = None
+        self.bias = nn.Parameter(self.weight.detach().new_zeros(len(self.weight)))
'''),
    Wrong("sums_twice", ["summed twice", "one all-reduce is enough"], '''
-        self.weight = nn.Parameter(  # mutate: same
-            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
-        )
@@
         self.group = group  # mutate: same
+        rows = full.weight.tensor_split(group.size)[group.index]
+        self.weight = nn.Parameter(rows.clone())
@@
-            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
+            own = full.bias.tensor_split(group.size)[group.index]
+            self.bias = nn.Parameter(own.clone())
@@
-        return linear(copy_to_group(x, self.group), self.weight, self.bias)
+        return linear(copy_to_group(copy_to_group(x, self.group), self.group), self.weight, self.bias)
'''),
]

RIGHT = [
    Right("variant_hook", "a hook on a view of the input, and a plain matrix product", '''
import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.bias = None
        if full.bias is not None:
            own = full.bias.tensor_split(group.size)[group.index]
            self.bias = nn.Parameter(own.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view_as(x)
        if x.requires_grad:
            x.register_hook(self._summed)
        y = x @ self.weight.t()
        return y if self.bias is None else y + self.bias

    def _summed(self, grad: torch.Tensor) -> torch.Tensor:
        total = grad.clone()
        all_reduce(total, self.group)
        return total
'''),
    Right("variant_layer_inside", "an nn.Linear inside, with properties", '''
import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm import copy_to_group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        parts = [p.detach() for p in full.parameters()]
        own = [p.tensor_split(group.size)[group.index] for p in parts]
        rows, columns = own[0].shape
        self.inner = nn.Linear(columns, rows, len(own) > 1, dtype=own[0].dtype)
        with torch.no_grad():
            for mine, new in zip(self.inner.parameters(), own, strict=True):
                mine.copy_(new)

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    @property
    def bias(self) -> torch.Tensor:
        return self.inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(copy_to_group(x, self.group))
'''),
    Right("variant_overlapped", "one autograd function; the all-reduce runs while the weight's gradient is computed", '''
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group, all_reduce


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, group: Group) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dx = (grad @ weight).contiguous()
        work = all_reduce(dx, ctx.group, async_op=True)
        dw = torch.einsum("...o,...i->oi", grad, x)
        db = torch.einsum("...o->o", grad)
        work.wait()
        return dx, dw, db if ctx.needs_input_grad[2] else None, None


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.bias = None
        if full.bias is not None:
            own = full.bias.tensor_split(group.size)[group.index]
            self.bias = nn.Parameter(own.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Layer.apply(x, self.weight, self.bias, self.group)
'''),
]
