"""Wrong and right answers to `bucketed_ddp`: see `course dev show bucketed_ddp`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("after_backward", ["nothing is sent during backward"], '''
-                parameter.register_post_accumulate_grad_hook(self.on_gradient)
'''),
    Wrong("always_zeroed_if_unused", ["wrong value", "parameters that a rank does not use"], '''
             if parameter not in self.arrived:
+                parameter.grad = None
'''),
    Wrong("arrived_is_kept", ["or before it was full"], '''
-        self.arrived.clear()  # mutate: same
'''),
    Wrong("asks_first_who_is_used", ["more calls than buckets"], '''
         """Sends the buckets that are left, and waits; called by every rank after each backward."""
+        all_reduce(torch.tensor([len(self.arrived)]), self.group)
'''),
    Wrong("blocking", ["was waited for during backward"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            work = all_reduce(self.flats[number], self.group, "avg")
'''),
    Wrong("bucket_without_gradients_skipped", ["parameters that a rank does not use", "deadlock"], '''
-        for parameter in self.views:
-            if parameter not in self.arrived:
-                self.on_gradient(parameter)
+        for number, bucket in enumerate(self.buckets):
+            if number >= len(self.under_way) and self.arrived.intersection(bucket):
+                for parameter in bucket:
+                    if parameter not in self.arrived:
+                        self.on_gradient(parameter)
'''),
    Wrong("bypasses_comm", ["called past course_lib.comm"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            work = torch.distributed.all_reduce(self.flats[number], group=self.group.handle, async_op=True)
@@
             work.wait()
+        for flat in self.flats:
+            flat /= self.group.size
'''),
    Wrong("copies_back", ["are not in one tensor"], '''
-        parameter.grad = view
@@
             work.wait()
+        for parameter, view in self.views.items():
+            parameter.grad = view.clone()
'''),
    Wrong("divides_by_the_world", ["gradients that come in a different order", "0.666667 times"], '''
+import os
 from typing import Any
@@
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            work = all_reduce(self.flats[number], self.group, "sum", async_op=True)
@@
             work.wait()
+        for flat in self.flats:
+            flat /= int(os.environ["WORLD_SIZE"])
'''),
    Wrong("divides_by_two", ["1.5 times what it should be"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            work = all_reduce(self.flats[number], self.group, "sum", async_op=True)
@@
             work.wait()
+        for flat in self.flats:
+            flat /= 2
'''),
    Wrong("float32_on_the_wire", ["is not what it should be", "list of calls"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
-            self.under_way.append(work)
+            small = self.flats[number].float()
+            work = all_reduce(small, self.group, "avg", async_op=True)
+            self.under_way.append((work, self.flats[number], small))
@@
-        for work in self.under_way:
+        for work, flat, small in self.under_way:
@@
             work.wait()
+            flat.copy_(small)
'''),
    Wrong("float64_flat", ["is not what it should be"], '''
-        self.flats = [torch.cat([torch.zeros_like(p).flatten() for p in b]) for b in buckets]
+        self.flats = [torch.cat([torch.zeros_like(p).flatten().double() for p in b]) for b in buckets]
@@
-        parameter.grad = view
+        parameter.grad = view.to(parameter.dtype) if view.dtype != parameter.dtype else view
@@
             work.wait()
+        for parameter, view in self.views.items():
+            parameter.grad = view.to(parameter.dtype)
'''),
    Wrong("flushed_without_zeros", ["what was left in its bucket from the step before"], '''
-        if parameter.grad is None:
-            view.zero_()
-        elif parameter.grad.data_ptr() != view.data_ptr():
+        if parameter.grad is not None and parameter.grad.data_ptr() != view.data_ptr():
'''),
    Wrong("forward_order", ["from the last to the first"], '''
-        self.buckets = buckets
+        self.buckets = buckets = buckets[::-1]
'''),
    Wrong("gradient_thrown_away", ["wrong value"], '''
-        if parameter.grad is None:
-            view.zero_()
-        elif parameter.grad.data_ptr() != view.data_ptr():
-            view.copy_(parameter.grad)
'''),
    Wrong("never_begins_anew", ["step 1"], '''
-        self.under_way.clear()
'''),
    Wrong("never_flushed", ["parameters that a rank does not use", "deadlock"], '''
-        for parameter in self.views:
-            if parameter not in self.arrived:
-                self.on_gradient(parameter)
'''),
    Wrong("new_flat_each_step", ["are in a different tensor than before"], '''
-            if not self.arrived.issuperset(self.buckets[number]):
+            bucket = self.buckets[number]
+            if not self.arrived.issuperset(bucket):
@@
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            flat = torch.cat([p.grad.flatten() for p in bucket])
+            for p, piece in zip(bucket, flat.split([p.numel() for p in bucket])):
+                p.grad = piece.view(p.shape)
+            work = all_reduce(flat, self.group, "avg", async_op=True)
'''),
    Wrong("no_wait", ["not waited for"], '''
-        for work in self.under_way:
-            work.wait()
'''),
    Wrong("one_bucket_a_hook", ["was not sent at once"], '''
-        while len(self.under_way) < len(self.buckets):
+        if len(self.under_way) < len(self.buckets):
@@
-                break
+                return
@@
                 self.on_gradient(parameter)
+        while len(self.under_way) < len(self.buckets):
+            self.on_gradient(self.buckets[-1][-1])
'''),
    Wrong("one_call_each", ["one call for each parameter"], '''
-        while len(self.under_way) < len(self.buckets):
-            number = len(self.under_way)  # of the bucket whose turn it is
-            if not self.arrived.issuperset(self.buckets[number]):
-                break
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
-            self.under_way.append(work)
+        work = all_reduce(view, self.group, "avg", async_op=True)
+        self.under_way.append(work)
'''),
    Wrong("one_call_for_all", ["list of calls", "not what it should be"], '''
-        self.buckets = buckets
+        kinds = {p.dtype: [] for bucket in buckets for p in bucket}
+        for p in [p for bucket in buckets for p in bucket]:
+            kinds[p.dtype].append(p)
+        self.buckets = buckets = list(kinds.values())
'''),
    Wrong("order_of_arrival", ["a different order on another rank", "wrong value"], '''
-        while len(self.under_way) < len(self.buckets):
-            number = len(self.under_way)  # of the bucket whose turn it is
-            if not self.arrived.issuperset(self.buckets[number]):
-                break
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
-            self.under_way.append(work)
+        for number, bucket in enumerate(self.buckets):
+            if parameter in set(bucket) and self.arrived.issuperset(bucket):
+                work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+                self.under_way.append(work)
@@
-        for parameter in self.views:
-            if parameter not in self.arrived:
-                self.on_gradient(parameter)
+        for bucket in self.buckets:
+            for parameter in bucket:
+                if parameter not in self.arrived:
+                    self.on_gradient(parameter)
'''),
    Wrong("sent_before_it_is_full", ["or before it was full"], '''
-            if not self.arrived.issuperset(self.buckets[number]):
+            if not self.arrived.intersection(self.buckets[number]):
'''),
    Wrong("stale_view", ["own gradient", "in step 1"], '''
-                self.views[parameter] = piece.view(parameter.shape)
+                self.views[parameter] = parameter.grad = piece.view(parameter.shape)
@@
-        elif parameter.grad.data_ptr() != view.data_ptr():
-            view.copy_(parameter.grad)
-        parameter.grad = view
'''),
    Wrong("sum", ["this is the sum over the ranks"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
+            work = all_reduce(self.flats[number], self.group, "sum", async_op=True)
'''),
    Wrong("torch_ddp", ["past course_lib.comm"], '''
 from course_lib.comm import Group, Work, all_reduce
+from torch.nn.parallel import DistributedDataParallel
@@
-        self.module = module
-        self.group = group
-        self.buckets = buckets
-        # BEGIN SOLUTION: a flat tensor for each bucket, views of it, and the hooks
-        self.flats = [torch.cat([torch.zeros_like(p).flatten() for p in b]) for b in buckets]
-        self.views: dict[nn.Parameter, torch.Tensor] = {}
-        for bucket, flat in zip(buckets, self.flats, strict=True):  # mutate: same
-            pieces = flat.split([p.numel() for p in bucket])
-            for parameter, piece in zip(bucket, pieces, strict=True):  # mutate: same
-                self.views[parameter] = piece.view(parameter.shape)
-                parameter.register_post_accumulate_grad_hook(self.on_gradient)
-        self.arrived: set[nn.Parameter] = set()  # mutate: same
-        self.under_way: list[Work] = []
+        self.ddp = DistributedDataParallel(
+            module, process_group=group.handle, gradient_as_bucket_view=True,
+            find_unused_parameters=True,
+        )
@@
-        return self.module(*args, **kwargs)
-
-    def on_gradient(self, parameter: nn.Parameter) -> None:
-        """Called when a gradient is ready, if you register it as your hook."""
-        # BEGIN SOLUTION: take the gradient into its bucket, and start what can be started
-        view = self.views[parameter]
-        if parameter.grad is None:
-            view.zero_()
-        elif parameter.grad.data_ptr() != view.data_ptr():
-            view.copy_(parameter.grad)
-        parameter.grad = view
-        self.arrived.add(parameter)
-        while len(self.under_way) < len(self.buckets):
-            number = len(self.under_way)  # of the bucket whose turn it is
-            if not self.arrived.issuperset(self.buckets[number]):
-                break
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
-            self.under_way.append(work)
+        return self.ddp(*args, **kwargs)
@@
-        for parameter in self.views:
-            if parameter not in self.arrived:
-                self.on_gradient(parameter)
-        for work in self.under_way:
-            work.wait()
-        self.arrived.clear()  # mutate: same
-        self.under_way.clear()
+        pass
'''),
    Wrong("unused_has_no_view", ["is None", "another rank used this parameter"], '''
-        parameter.grad = view
+        if parameter.grad is not None:
+            parameter.grad = view
'''),
    Wrong("waits_for_the_one_before", ["was waited for during backward"], '''
                 break
+            if number:
+                self.under_way[-1].wait()
'''),
    Wrong("wider_than_bf16", ["bfloat16 of `gain` was sent in a dtype of 2 times its width"], '''
-            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
-            self.under_way.append(work)
+            flat = self.flats[number]
+            wide = flat.float() if flat.dtype == torch.bfloat16 else flat
+            work = all_reduce(wide, self.group, "avg", async_op=True)
+            self.under_way.append((work, flat, wide))
@@
-        for work in self.under_way:
+        for work, flat, wide in self.under_way:
@@
             work.wait()
+            flat.copy_(wide)
'''),
    Wrong("keeps_old_works", ["the number of Works that are still there", "they pile up"], '''
-        for work in self.under_way:
-            work.wait()
-        self.arrived.clear()  # mutate: same
-        self.under_way.clear()
+        for work in self.under_way:
+            work.wait()
+        self.arrived.clear()
+        self.waited = [*getattr(self, "waited", ()), *self.under_way]
+        self.under_way.clear()
'''),
]

RIGHT = [
    Right("variant_cleared_by_forward", "cleared by forward, not by synchronize", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce


class BucketedDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group, buckets: list[list[nn.Parameter]]) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.buckets = buckets
        self.flats = [torch.cat([torch.zeros_like(p).flatten() for p in b]) for b in buckets]
        self.views: dict[nn.Parameter, torch.Tensor] = {}
        for bucket, flat in zip(buckets, self.flats, strict=True):
            pieces = flat.split([p.numel() for p in bucket])
            for parameter, piece in zip(bucket, pieces, strict=True):
                self.views[parameter] = piece.view(parameter.shape)
                parameter.register_post_accumulate_grad_hook(self.on_gradient)
        self.arrived: set[nn.Parameter] = set()
        self.under_way: list[Work] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.arrived.clear()
        self.under_way.clear()
        return self.module(*args, **kwargs)

    def on_gradient(self, parameter: nn.Parameter) -> None:
        view = self.views[parameter]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad.data_ptr() != view.data_ptr():
            view.copy_(parameter.grad)
        parameter.grad = view
        self.arrived.add(parameter)
        for bucket, flat in list(zip(self.buckets, self.flats))[len(self.under_way) :]:
            if any(p not in self.arrived for p in bucket):
                return
            self.under_way.append(all_reduce(flat, self.group, "avg", async_op=True))

    def synchronize(self) -> None:
        for parameter in self.views:
            if parameter not in self.arrived:
                self.on_gradient(parameter)
        for work in self.under_way:
            work.wait()
'''),
    Right("variant_counts", "a class for the bucket, counts instead of sets, the sum divided at the end", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class Bucket:
    def __init__(self, params: list[nn.Parameter]) -> None:
        self.params = params
        self.flat = params[0].new_zeros(sum(p.numel() for p in params), requires_grad=False)
        self.seen: list[int] = []
        self.work = None

    def take(self, number: int) -> None:
        parameter = self.params[number]
        at = sum(p.numel() for p in self.params[:number])
        view = self.flat[at : at + parameter.numel()].view_as(parameter)
        if parameter.grad is None:
            view.fill_(0)
        else:
            view.copy_(parameter.grad)  # onto itself, if it is the view
        parameter.grad = view
        self.seen.append(number)


class BucketedDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group, buckets: list[list[nn.Parameter]]) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.buckets = [Bucket(bucket) for bucket in buckets]
        for bucket in self.buckets:
            for number, parameter in enumerate(bucket.params):
                parameter.register_post_accumulate_grad_hook(
                    lambda _, bucket=bucket, number=number: self.ready(bucket, number)
                )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def ready(self, bucket: Bucket, number: int) -> None:
        bucket.take(number)
        for each in self.buckets:
            if len(each.seen) < len(each.params):
                return
            self.send(each)

    def send(self, bucket: Bucket) -> None:
        if bucket.work is None:
            bucket.work = all_reduce(bucket.flat, self.group, async_op=True)

    def synchronize(self) -> None:
        for bucket in self.buckets:
            for number in range(len(bucket.params)):
                if number not in bucket.seen:
                    bucket.take(number)
            self.send(bucket)
        for bucket in self.buckets:
            bucket.work.wait()
            bucket.flat.div_(self.group.size)
            bucket.seen, bucket.work = [], None
'''),
    Right("variant_one_memory", "one memory for each dtype, the buckets are slices of it", '''
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce


class BucketedDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group, buckets: list[list[nn.Parameter]]) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.buckets = buckets
        self.flats = []
        memory: dict[torch.dtype, torch.Tensor] = {}
        for bucket in buckets:
            dtype, count = bucket[0].dtype, sum(p.numel() for p in bucket)
            every = sum(p.numel() for b in buckets for p in b if p.dtype == dtype)
            rest = memory.setdefault(dtype, torch.zeros(every, dtype=dtype))
            self.flats.append(rest[:count])
            memory[dtype] = rest[count:]
        self.views: dict[nn.Parameter, torch.Tensor] = {}
        for bucket, flat in zip(buckets, self.flats, strict=True):
            pieces = flat.split([p.numel() for p in bucket])
            for parameter, piece in zip(bucket, pieces, strict=True):
                self.views[parameter] = piece.view(parameter.shape)
                parameter.register_post_accumulate_grad_hook(self.on_gradient)
        self.arrived: set[nn.Parameter] = set()
        self.under_way: list[Work] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def on_gradient(self, parameter: nn.Parameter) -> None:
        view = self.views[parameter]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad.data_ptr() != view.data_ptr():
            view.copy_(parameter.grad)
        parameter.grad = view
        self.arrived.add(parameter)
        while len(self.under_way) < len(self.buckets):
            number = len(self.under_way)  # of the bucket whose turn it is
            if not self.arrived.issuperset(self.buckets[number]):
                break
            work = all_reduce(self.flats[number], self.group, "avg", async_op=True)
            self.under_way.append(work)

    def synchronize(self) -> None:
        for parameter in self.views:
            if parameter not in self.arrived:
                self.on_gradient(parameter)
        for work in self.under_way:
            work.wait()
        self.arrived.clear()
        self.under_way.clear()
'''),
]
