"""Wrong and right answers to `scale_by_present`: see `course dev show scale_by_present`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("other_memory", ["the tensor has moved to other memory"], '''
-    tensor.div_(max(count, 1))
+    tensor.set_(tensor / max(count, 1))
'''),
    Wrong("alone_nothing_to_do", ["the mean of 0 of 1 ranks"], '''
+    if group.size == 1:
+        return int(present)
     if not present:
         tensor.zero_()
'''),
    Wrong("nan_is_hidden", ["a NaN of the others must be seen"], '''
     if not present:
         tensor.zero_()
+    tensor.nan_to_num_()
'''),
    Wrong("sent_in_float32", ["bytes sent of a bfloat16 tensor"], '''
-    all_reduce(tensor, group)
+    wide = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
+    all_reduce(wide, group)
+    tensor.copy_(wide)
'''),
    Wrong("number_is_left", ["the mean of tensors of shape ()"], '''
-    tensor.div_(max(count, 1))
+    if tensor.dim():
+        tensor.div_(max(count, 1))
'''),
    Wrong("barrier_first", ["the calls are"], '''
+    barrier(group)
     all_reduce(tensor, group)
@@
-from course_lib.comm import Group, all_reduce
+from course_lib.comm import Group, all_reduce, barrier
'''),
    Wrong("worlds_size", ["divided by the group's size"], '''
-    tensor.div_(max(count, 1))
+    tensor.div_(group.size)
'''),
    Wrong("absent_summed", ["absent ranks count in the sum"], '''
-    if not present:
-        tensor.zero_()
'''),
    Wrong("absent_counted", ["divided by the group's size"], '''
-    number = torch.tensor(int(present))
+    number = torch.tensor(1)
'''),
    Wrong("times_zero", ["an absent rank's values must not matter"], '''
-    if not present:
-        tensor.zero_()
+    tensor.mul_(float(present))
'''),
    Wrong("not_divided", ["it is not divided"], '''
-    tensor.div_(max(count, 1))
'''),
    Wrong("nobody_divides", ["the mean of 0 of 3 ranks"], '''
-    tensor.div_(max(count, 1))
+    tensor.div_(count)
'''),
    Wrong("absent_is_silent", ["deadlock"], '''
     if not present:
-        tensor.zero_()
+        tensor.zero_()
+        return 0
'''),
    Wrong("absent_keeps_its_own", ["this is the rank's own tensor"], '''
-    if not present:
-        tensor.zero_()
-    all_reduce(tensor, group)
+    mine = tensor.clone() if present else torch.zeros_like(tensor)
+    all_reduce(mine, group)
@@
-    tensor.div_(max(count, 1))
+    if present:
+        tensor.copy_(mine / max(count, 1))
'''),
    Wrong("not_in_place", ["this is the rank's own tensor"], '''
-    if not present:
-        tensor.zero_()
+    tensor = tensor.clone() if present else torch.zeros_like(tensor)
'''),
    Wrong("counts_itself", ["the number that is returned"], '''
-    return count
+    return int(present)
'''),
    Wrong("gathers_all", ["one all-reduce of the tensor is enough"], '''
     all_reduce(tensor, group)
+    all_reduce(torch.zeros_like(tensor), group)
'''),
    Wrong("single_precision", ["the mean of"], '''
-    all_reduce(tensor, group)
+    mine = tensor.float()
+    all_reduce(mine, group)
+    tensor.copy_(mine)
'''),
    Wrong("returns_a_float", ["the value is right, but its type is float, not int"], '''
-    return count
+    return float(count)
'''),
    Wrong("wrong_in_bfloat16", ["two equal tensors in bfloat16"], '''
-    tensor.div_(max(count, 1))
+    tensor.div_(max(count, 1) if tensor.dtype != torch.bfloat16 else group.size)
'''),
    Wrong("both_in_one", ["the ranks are counted in bfloat16"], '''
-    all_reduce(tensor, group)
-    number = torch.tensor(int(present))
-    all_reduce(number, group)
-    count = int(number)
-    tensor.div_(max(count, 1))
+    both = torch.cat([tensor.flatten(), torch.full((1,), float(present)).to(tensor)])
+    all_reduce(both, group)
+    count = int(both[-1])
+    tensor.copy_(both[:-1].view(tensor.shape) / max(count, 1))
'''),
    Wrong("counts_in_its_dtype", ["the ranks are counted in bfloat16"], '''
-    number = torch.tensor(int(present))
+    number = torch.tensor(float(present), dtype=tensor.dtype)
'''),
]

RIGHT = [
    Right("two_calls", "the count in a call of its own", '''
import torch

from course_lib.comm import all_reduce


def scale_by_present(tensor, present, group):
    sent = tensor.contiguous().clone() if present else torch.zeros_like(tensor).contiguous()
    count = torch.tensor([1.0 if present else 0.0], dtype=torch.float64)
    all_reduce(count, group)
    all_reduce(sent, group)
    if count.item():
        sent /= count.item()
    tensor.copy_(sent)
    return int(count.item())
'''),
    Right("where", "torch.where in place of a branch", '''
import torch

from course_lib.comm import all_reduce


def scale_by_present(tensor, present, group):
    mine = torch.where(torch.tensor(present), tensor, torch.zeros(()).to(tensor))
    count = torch.tensor(float(present))
    all_reduce(mine, group)
    all_reduce(count, group)
    tensor.copy_(mine / count.clamp(min=1).to(tensor.dtype))
    return round(count.item())
'''),
    Right("zeroed", "fills its own tensor with zeros first", '''
import torch

from course_lib.comm import all_reduce


def scale_by_present(tensor, present, group):
    if not present:
        tensor.zero_()
    count = torch.tensor(int(present))
    all_reduce(count, group)
    whole = tensor.contiguous()
    all_reduce(whole, group)
    tensor.copy_(whole / count.clamp(min=1).to(tensor.dtype))
    return int(count)
'''),
]
