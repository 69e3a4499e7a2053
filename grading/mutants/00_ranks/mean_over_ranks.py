"""Wrong and right answers to `mean_over_ranks`: see `course dev show mean_over_ranks`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("always_float64", ["the mean has the wrong dtype"], '''
-    total = tensor.clone()
+    total = tensor.to(torch.float64, copy=True)
'''),
    Wrong("alone_returns_the_input", ["the result is the input itself, [3] on 1 ranks"], '''
-    total = tensor.clone()
+    total = tensor if group.size == 1 else tensor.clone()
@@
-    return total / group.size
+    return total.div_(group.size)
'''),
    Wrong("sum", ["this is the sum"], '''
-    return total / group.size
+    return total
'''),
    Wrong("own_divided", ["nothing was added"], '''
-    all_reduce(total, group)
'''),
    Wrong("own_tensor", ["the rank's own tensor"], '''
-    total = tensor.clone()
-    all_reduce(total, group)
-    return total / group.size
+    return tensor.clone()
'''),
    Wrong("in_place", ["the input tensor", "give it a copy"], '''
-    total = tensor.clone()
-    all_reduce(total, group)
-    return total / group.size
+    all_reduce(tensor, group)
+    return tensor / group.size
'''),
    Wrong("one_rank_only", ["ranks 1 and 2 finished without", "A collective ends when all have called it"], '''
-    all_reduce(total, group)
+    if group.index == 0:
+        all_reduce(total, group)
'''),
    Wrong("gathers", ["the tensors were gathered"], '''
-    total = tensor.clone()
-    all_reduce(total, group)
-    return total / group.size
+    parts = torch.empty(group.size, *tensor.shape, dtype=tensor.dtype)
+    all_gather(parts, tensor.contiguous(), group)
+    return parts.mean(0)
@@
-from course_lib.comm import Group, all_reduce
+from course_lib.comm import Group, all_gather
'''),
    Wrong("twice", ["two all-reduces"], '''
-    all_reduce(total, group)
+    all_reduce(total, group)
+    count = torch.ones_like(total)
+    all_reduce(count, group)
@@
-    return total / group.size
+    return total / count
'''),
]

RIGHT = [
    Right("divides_first", "divides before the sum", '''
import torch

from course_lib.comm import Group, all_reduce


def mean_over_ranks(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    mean = tensor / group.size
    all_reduce(mean, group)
    return mean
'''),
    Right("average", "the reduction avg", '''
from course_lib import comm


def mean_over_ranks(tensor, group):
    mean = tensor.clone()
    comm.all_reduce(mean, group, "avg")
    return mean
'''),
    Right("async", "a call that is waited for, divided in place", '''
from course_lib.comm import all_reduce


def mean_over_ranks(tensor, group):
    mean = tensor.detach().clone()
    work = all_reduce(mean, group, async_op=True)
    work.wait()
    mean /= group.size
    return mean
'''),
]
