"""Wrong and right answers to `zero2`: see `course dev show zero2`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_reduce", ["an all-reduce sends twice as much"], '''
 from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter
+from course_lib.comm import all_reduce
@@
-        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
+        all_reduce(bucket.full, self.group, "avg")
+        mine = bucket.full.view(self.group.size, -1)[self.group.index]
'''),
    Wrong("bucket_not_given_back", ["free `bucket.full`", "reduced again in `step`"], '''
-        bucket.full = None
'''),
    Wrong("each_parameter_alone", ["one for each parameter"], '''
-        if not bucket.missing:
-            self.reduce(bucket)
+        self.reduce(bucket)
@@
-        bucket.missing = set(bucket.params)
+        bucket.missing = bucket.missing or set(bucket.params)
'''),
    Wrong("full_gradients_kept", ["the gradients also stay where they were"], '''
-        bucket.full[bucket.places[param]] += param.grad.reshape(-1)
-        param.grad = None
+        bucket.full[bucket.places[param]] = param.grad.reshape(-1)
'''),
    Wrong("given_back_at_the_end", ["peak bytes of gradients is too large"], '''
-        if bucket.full is None:
+        if len(bucket.missing) == len(bucket.params):
@@
             bucket.full = torch.zeros_like(bucket.flat)
+        if bucket is self.buckets[-1] and len(bucket.missing) == 1:
+            for other in self.buckets[:-1]:
+                other.full = None
@@
             self.reduce(bucket)
+            if bucket is self.buckets[-1]:
+                bucket.full = None
@@
-        bucket.full = None
'''),
    Wrong("gradient_hook", ["exception"], '''
-            param.register_post_accumulate_grad_hook(partial(self.on_gradient, bucket))
+            param.register_hook(partial(self.on_gradient, bucket))
'''),
    Wrong("hook_on_the_last_only", ["parameters with a `.grad` after a backward", "the number of collectives in two backwards"], '''
-        for param in bucket.params:
+        for param in bucket.params[-1:]:
'''),
    Wrong("last_backward_only", ["only the last backward's gradients"], '''
-        if bucket.shard.grad is None:
-            bucket.shard.grad = mine.clone()
-        else:
-            bucket.shard.grad += mine
+        bucket.shard.grad = mine.clone()
'''),
    Wrong("missing_not_reset", ["in the second backward buckets are sent before they are complete"], '''
-        bucket.missing = set(bucket.params)
'''),
    Wrong("not_reduced", ["no collective: reduce a bucket"], '''
-        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
+        mine = bucket.full.view(self.group.size, -1)[self.group.index]
'''),
    Wrong("reduced_in_the_step", ["no bucket was reduced before the step", "no collective: reduce a bucket in the hook", "comes after the last gradient"], '''
-        bucket.missing.discard(param)
-        if not bucket.missing:
-            self.reduce(bucket)
'''),
    Wrong("room_for_all_at_once", ["bytes of gradients held after the backwards"], '''
-        if bucket.full is None:
-            bucket.full = torch.zeros_like(bucket.flat)
+        for other in self.buckets:
+            if other.full is None:
+                other.full = torch.zeros_like(other.flat)
'''),
    Wrong("sent_at_the_first_gradient", ["comes before its bucket is complete"], '''
-        if not bucket.missing:
-            self.reduce(bucket)
+        self.reduce(bucket)
'''),
    Wrong("sum_over_ranks", ["the sum over the ranks"], '''
-        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
+        mine = ring_reduce_scatter(bucket.full, self.group)
'''),
    Wrong("summed_twice", ["earlier backwards are in it again and again"], '''
-        param.grad = None
'''),
    Wrong("view_keeps_the_bucket", ["a view of all of it: clone it"], '''
-            bucket.shard.grad = mine.clone()
+            bucket.shard.grad = mine
'''),
    Wrong("wider_than_the_gradient", ["it was converted to a wider dtype before it was sent"], '''
-        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
+        mine = ring_reduce_scatter(bucket.full.double(), self.group, "avg").to(bucket.flat.dtype)
'''),
    Wrong("waits_for_unused", ["a parameter that no rank uses"], '''
-            if bucket.full is not None:
+            if bucket.full is not None and not bucket.missing:
'''),
]

RIGHT = [
    Right("variant_backend", "the backend's reduce-scatter, into memory of its own", '''
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, reduce_scatter, ring_all_gather


class Bucket:
    """Parameters in one flat tensor, padded for `group`, and this rank's shard of it.

    Attributes:
        params: the parameters, views of `flat`.
        flat: their values, one dimension; a multiple of the group's size.
        shard: this rank's part of `flat`, for the optimizer; shares its memory.
        places: where each parameter lies in `flat`, and in `full`, as a slice.
        full: this rank's gradients, in the order of `flat`; None while there are none.
        missing: parameters whose gradient has not come in this backward.
    """

    def __init__(self, params: list[nn.Parameter], group: Group) -> None:
        count = sum(p.numel() for p in params)
        self.params = params
        self.flat = params[0].new_zeros(-(-count // group.size) * group.size)
        self.places: dict[nn.Parameter, slice] = {}
        at = 0
        for param in params:
            self.places[param] = slice(at, at + param.numel())
            at += param.numel()
            self.flat[self.places[param]] = param.detach().reshape(-1)
            param.data = self.flat[self.places[param]].view(param.shape)
        broadcast(self.flat, 0, group)
        self.shard = nn.Parameter(self.flat.view(group.size, -1)[group.index])
        self.full: torch.Tensor | None = None
        self.missing = set(params)


def cut_in_buckets(params: Iterable[nn.Parameter], cap: int) -> Iterator[list[nn.Parameter]]:
    """Lists of trained parameters, of at most `cap` bytes each, last parameter first."""
    bucket: list[nn.Parameter] = []
    for param in reversed([p for p in params if p.requires_grad]):
        if bucket and sum(p.nbytes for p in bucket) + param.nbytes > cap:
            yield bucket
            bucket = []
        bucket.append(param)
    yield bucket


class Zero2:
    """Wraps an optimizer class.

    Args:
        params: parameters of one dtype.
        optimizer: a class that works element by element.
        group: the ranks.
        cap: bytes of a bucket.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], optimizer: Callable[..., Any], group: Group, cap: int,
        **options: Any,
    ) -> None:
        self.group = group
        self.buckets = [Bucket(each, group) for each in cut_in_buckets(params, cap)]
        self.inner = optimizer([bucket.shard for bucket in self.buckets], **options)
        for bucket in self.buckets:
            self.watch(bucket)

    def watch(self, bucket: Bucket) -> None:
        """Has `on_gradient(bucket, param)` called when a gradient is complete."""
        for param in bucket.params:
            param.register_post_accumulate_grad_hook(partial(self.on_gradient, bucket))

    @torch.no_grad()
    def on_gradient(self, bucket: Bucket, param: nn.Parameter) -> None:
        """The gradient of one parameter of the bucket is complete, in `param.grad`."""
        if bucket.full is None:
            bucket.full = torch.zeros_like(bucket.flat)
        bucket.full[bucket.places[param]] += param.grad.reshape(-1)
        param.grad = None
        bucket.missing.discard(param)
        if not bucket.missing:
            self.reduce(bucket)

    @torch.no_grad()
    def reduce(self, bucket: Bucket) -> None:
        """Averages the bucket's gradients over the ranks and keeps this rank's part."""
        mine = torch.empty_like(bucket.shard)
        reduce_scatter(mine, bucket.full, self.group, "avg")
        if bucket.shard.grad is not None:
            mine += bucket.shard.grad
        bucket.shard.grad = mine
        bucket.full = None
        bucket.missing = set(bucket.params)

    def step(self) -> None:
        """Updates this rank's shards and collects the parameters."""
        for bucket in self.buckets:
            if bucket.full is not None:
                self.reduce(bucket)
        self.inner.step()
        for bucket in self.buckets:
            ring_all_gather(bucket.flat, self.group)

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for bucket in self.buckets:
            bucket.full, bucket.missing = None, set(bucket.params)
'''),
    Right("variant_closure", "a closure as hook, gradients scaled on the way in", '''
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


class Bucket:
    """Parameters in one flat tensor, padded for `group`, and this rank's shard of it.

    Attributes:
        params: the parameters, views of `flat`.
        flat: their values, one dimension; a multiple of the group's size.
        shard: this rank's part of `flat`, for the optimizer; shares its memory.
        places: where each parameter lies in `flat`, and in `full`, as a slice.
        full: this rank's gradients, in the order of `flat`; None while there are none.
        missing: parameters whose gradient has not come in this backward.
    """

    def __init__(self, params: list[nn.Parameter], group: Group) -> None:
        count = sum(p.numel() for p in params)
        self.params = params
        self.flat = params[0].new_zeros(-(-count // group.size) * group.size)
        self.places: dict[nn.Parameter, slice] = {}
        at = 0
        for param in params:
            self.places[param] = slice(at, at + param.numel())
            at += param.numel()
            self.flat[self.places[param]] = param.detach().reshape(-1)
            param.data = self.flat[self.places[param]].view(param.shape)
        broadcast(self.flat, 0, group)
        self.shard = nn.Parameter(self.flat.view(group.size, -1)[group.index])
        self.full: torch.Tensor | None = None
        self.missing = set(params)


def cut_in_buckets(params: Iterable[nn.Parameter], cap: int) -> Iterator[list[nn.Parameter]]:
    """Lists of trained parameters, of at most `cap` bytes each, last parameter first."""
    bucket: list[nn.Parameter] = []
    for param in reversed([p for p in params if p.requires_grad]):
        if bucket and sum(p.nbytes for p in bucket) + param.nbytes > cap:
            yield bucket
            bucket = []
        bucket.append(param)
    yield bucket


class Zero2:
    """Wraps an optimizer class.

    Args:
        params: parameters of one dtype.
        optimizer: a class that works element by element.
        group: the ranks.
        cap: bytes of a bucket.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], optimizer: Callable[..., Any], group: Group, cap: int,
        **options: Any,
    ) -> None:
        self.group = group
        self.buckets = [Bucket(each, group) for each in cut_in_buckets(params, cap)]
        self.inner = optimizer([bucket.shard for bucket in self.buckets], **options)
        for bucket in self.buckets:
            self.watch(bucket)

    def watch(self, bucket: Bucket) -> None:
        """Has `on_gradient(bucket, param)` called when a gradient is complete."""
        for param in bucket.params:

            def hook(param: nn.Parameter, bucket: Bucket = bucket) -> None:
                self.on_gradient(bucket, param)

            param.register_post_accumulate_grad_hook(hook)

    @torch.no_grad()
    def on_gradient(self, bucket: Bucket, param: nn.Parameter) -> None:
        """The gradient of one parameter of the bucket is complete, in `param.grad`."""
        if bucket.full is None:
            bucket.full = torch.zeros_like(bucket.flat)
        bucket.full[bucket.places[param]] += param.grad.flatten() / self.group.size
        param.grad = None
        bucket.missing.discard(param)
        if not bucket.missing:
            self.reduce(bucket)

    @torch.no_grad()
    def reduce(self, bucket: Bucket) -> None:
        """Averages the bucket's gradients over the ranks and keeps this rank's part."""
        mine = ring_reduce_scatter(bucket.full, self.group)
        if bucket.shard.grad is None:
            bucket.shard.grad = mine.clone()
        else:
            bucket.shard.grad += mine
        bucket.full = None
        bucket.missing = set(bucket.params)

    def step(self) -> None:
        """Updates this rank's shards and collects the parameters."""
        for bucket in self.buckets:
            if bucket.full is not None:
                self.reduce(bucket)
        self.inner.step()
        for bucket in self.buckets:
            ring_all_gather(bucket.flat, self.group)

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for bucket in self.buckets:
            bucket.full, bucket.missing = None, set(bucket.params)
'''),
    Right("variant_new_shard_gradient", "the hook looks at places that are filled; the shard starts as zeros", '''
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


class Bucket:
    """Parameters in one flat tensor, padded for `group`, and this rank's shard of it.

    Attributes:
        params: the parameters, views of `flat`.
        flat: their values, one dimension; a multiple of the group's size.
        shard: this rank's part of `flat`, for the optimizer; shares its memory.
        places: where each parameter lies in `flat`, and in `full`, as a slice.
        full: this rank's gradients, in the order of `flat`; None while there are none.
        missing: parameters whose gradient has not come in this backward.
    """

    def __init__(self, params: list[nn.Parameter], group: Group) -> None:
        count = sum(p.numel() for p in params)
        self.params = params
        self.flat = params[0].new_zeros(-(-count // group.size) * group.size)
        self.places: dict[nn.Parameter, slice] = {}
        at = 0
        for param in params:
            self.places[param] = slice(at, at + param.numel())
            at += param.numel()
            self.flat[self.places[param]] = param.detach().reshape(-1)
            param.data = self.flat[self.places[param]].view(param.shape)
        broadcast(self.flat, 0, group)
        self.shard = nn.Parameter(self.flat.view(group.size, -1)[group.index])
        self.full: torch.Tensor | None = None
        self.missing = set(params)


def cut_in_buckets(params: Iterable[nn.Parameter], cap: int) -> Iterator[list[nn.Parameter]]:
    """Lists of trained parameters, of at most `cap` bytes each, last parameter first."""
    bucket: list[nn.Parameter] = []
    for param in reversed([p for p in params if p.requires_grad]):
        if bucket and sum(p.nbytes for p in bucket) + param.nbytes > cap:
            yield bucket
            bucket = []
        bucket.append(param)
    yield bucket


class Zero2:
    """Wraps an optimizer class.

    Args:
        params: parameters of one dtype.
        optimizer: a class that works element by element.
        group: the ranks.
        cap: bytes of a bucket.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], optimizer: Callable[..., Any], group: Group, cap: int,
        **options: Any,
    ) -> None:
        self.group = group
        self.buckets = [Bucket(each, group) for each in cut_in_buckets(params, cap)]
        self.inner = optimizer([bucket.shard for bucket in self.buckets], **options)
        for bucket in self.buckets:
            self.watch(bucket)

    def watch(self, bucket: Bucket) -> None:
        """Has `on_gradient(bucket, param)` called when a gradient is complete."""
        for param in bucket.params:
            param.register_post_accumulate_grad_hook(partial(self.on_gradient, bucket))

    @torch.no_grad()
    def on_gradient(self, bucket: Bucket, param: nn.Parameter) -> None:
        """The gradient of one parameter of the bucket is complete, in `param.grad`."""
        if bucket.full is None:
            bucket.full = torch.zeros_like(bucket.flat)
        bucket.full[bucket.places[param]] += param.grad.reshape(-1)
        param.grad = None
        bucket.missing = {other for other in bucket.missing if other is not param}
        if len(bucket.missing) == 0:
            self.reduce(bucket)

    @torch.no_grad()
    def reduce(self, bucket: Bucket) -> None:
        """Averages the bucket's gradients over the ranks and keeps this rank's part."""
        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
        if bucket.shard.grad is None:
            bucket.shard.grad = torch.zeros_like(bucket.shard)
        bucket.shard.grad.add_(mine)
        bucket.full = None
        bucket.missing = set(bucket.params)

    def step(self) -> None:
        """Updates this rank's shards and collects the parameters."""
        for bucket in self.buckets:
            if bucket.full is not None:
                self.reduce(bucket)
        self.inner.step()
        for bucket in self.buckets:
            ring_all_gather(bucket.flat, self.group)

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for bucket in self.buckets:
            bucket.full, bucket.missing = None, set(bucket.params)
'''),
]
