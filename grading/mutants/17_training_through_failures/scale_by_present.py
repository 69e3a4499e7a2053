"""Wrong and right answers to `scale_by_present`: see `course dev show scale_by_present`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("nan_is_hidden", ["a NaN of the others must be seen"], '''
-        mine[:-1] = tensor.reshape(-1)
+        mine[:-1] = tensor.reshape(-1).nan_to_num()
'''),
    Wrong("sent_in_float32", ["bytes sent of a bfloat16 tensor"], '''
+    mine = mine.float() if mine.dtype is torch.bfloat16 else mine
     all_reduce(mine, group)
'''),
    Wrong("number_is_left", ["the mean of tensors of shape ()"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    if tensor.dim():
+        tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
'''),
    Wrong("barrier_first", ["the calls are"], '''
+    barrier(group)
     all_reduce(mine, group)
@@
-from course_lib.comm import Group, all_reduce
+from course_lib.comm import Group, all_reduce, barrier
'''),
    Wrong("worlds_size", ["divided by the group's size"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    tensor.copy_(mine[:-1].view(tensor.shape) / group.size)
'''),
    Wrong("absent_summed", ["absent ranks count in the sum"], '''
+    mine[:-1] = tensor.reshape(-1)
     if present:
-        mine[:-1] = tensor.reshape(-1)
'''),
    Wrong("absent_counted", ["divided by the group's size"], '''
-        mine[-1] = 1.0
+    mine[-1] = 1.0
'''),
    Wrong("times_zero", ["an absent rank's values must not matter"], '''
     if present:
-        mine[:-1] = tensor.reshape(-1)
         mine[-1] = 1.0
+    mine[:-1] = tensor.reshape(-1) * float(present)
'''),
    Wrong("not_divided", ["it is not divided"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    tensor.copy_(mine[:-1].view(tensor.shape))
'''),
    Wrong("nobody_divides", ["the mean of 0 of 3 ranks"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    tensor.copy_(mine[:-1].view(tensor.shape) / count)
'''),
    Wrong("absent_is_silent", ["deadlock"], '''
+    if not present:
+        return 0
     all_reduce(mine, group)
'''),
    Wrong("absent_keeps_its_own", ["this is the rank's own tensor"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    if present:
+        tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
'''),
    Wrong("not_in_place", ["this is the rank's own tensor"], '''
-    tensor.copy_(mine[:-1].view(tensor.shape) / max(count, 1))
+    tensor = mine[:-1].view(tensor.shape) / max(count, 1)
'''),
    Wrong("counts_itself", ["the number that is returned"], '''
-    return count
+    return int(present)
'''),
    Wrong("gathers_all", ["one all-reduce of the tensor is enough"], '''
     all_reduce(mine, group)
+    all_reduce(torch.zeros_like(mine), group)
'''),
    Wrong("single_precision", ["the mean of"], '''
-    mine = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
+    mine = torch.zeros(tensor.numel() + 1)
'''),
    Wrong("returns_a_float", ["the value is right, but its type is float, not int"], '''
-    count = int(mine[-1].item())
+    count = mine[-1].item()
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
    flat = torch.where(torch.tensor(present), tensor.flatten(), torch.zeros(()).to(tensor))
    both = torch.cat([flat, torch.full((1,), float(present)).to(tensor)])
    all_reduce(both, group)
    count = round(both[-1].item())
    tensor.copy_((both[:-1] / max(count, 1)).reshape(tensor.shape))
    return count
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
