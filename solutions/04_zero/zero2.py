"""ZeRO-2: gradients in shards as well; each bucket is reduce-scattered while backward goes on.

Notebook 04. With ZeRO-1 every rank still holds all gradients until the step, although it needs only
its shard of them. But a gradient is complete long before backward ends: autograd then calls the
parameter's hook. So each gradient moves into its bucket at once, and a bucket that has all of its
gradients is averaged over the ranks by a reduce-scatter. This rank keeps its shard of the result,
and the bucket's memory is freed. A rank then holds at most S/N bytes and two buckets of gradients.

`Bucket`, `cut_in_buckets` and everything around the three functions that you write are given:

- `watch(bucket)` registers a `post_accumulate_grad_hook` on each parameter of the bucket, so that
  `self.on_gradient(bucket, param)` is called as soon as the parameter's gradient is complete.
  `functools.partial` passes the bucket.
- `on_gradient(bucket, param)` adds the gradient at its place in `bucket.full`, a flat tensor like
  `bucket.flat`. If there is none yet, make it now, as zeros. Then free the parameter's own `.grad`,
  and reduce the bucket if it is complete.
- `reduce(bucket)` averages `bucket.full` over the ranks and adds this rank's part to the gradient
  of `bucket.shard`. Then it frees `bucket.full` and gets the bucket ready for the next backward. A
  part that is a view of `bucket.full` would keep all of it alive.

Rules: several backwards before a step add up, and each of them reduces its buckets. After a
backward no parameter has a `.grad`. Every rank uses the same parameters. A parameter that no rank
uses leaves its bucket incomplete until `step`, which reduces it. Make one reduce-scatter for each
complete bucket and backward (an incomplete bucket has a single one, in `step`): use
`ring_reduce_scatter`, which works in place, or `reduce_scatter`, both of `course_lib.comm`.
"""

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
        missing: parameters whose gradient has not arrived in this backward.
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
        options: keyword arguments for the optimizer.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        optimizer: Callable[..., Any],
        group: Group,
        cap: int,
        **options: Any,
    ) -> None:
        self.group = group
        self.buckets = [Bucket(each, group) for each in cut_in_buckets(params, cap)]
        self.inner = optimizer([bucket.shard for bucket in self.buckets], **options)
        for bucket in self.buckets:
            self.watch(bucket)

    def watch(self, bucket: Bucket) -> None:
        """Arranges that `on_gradient(bucket, param)` is called when a gradient is complete."""
        # BEGIN SOLUTION
        for param in bucket.params:
            param.register_post_accumulate_grad_hook(partial(self.on_gradient, bucket))
        # END SOLUTION

    @torch.no_grad()
    def on_gradient(self, bucket: Bucket, param: nn.Parameter) -> None:
        """Called when the gradient of one parameter of the bucket is complete in `param.grad`."""
        # BEGIN SOLUTION
        if bucket.full is None:
            bucket.full = torch.zeros_like(bucket.flat)
        bucket.full[bucket.places[param]] += param.grad.reshape(-1)
        param.grad = None
        bucket.missing.discard(param)
        if not bucket.missing:
            self.reduce(bucket)
        # END SOLUTION

    @torch.no_grad()
    def reduce(self, bucket: Bucket) -> None:
        """Averages the bucket's gradients over the ranks and keeps this rank's part."""
        # BEGIN SOLUTION
        mine = ring_reduce_scatter(bucket.full, self.group, "avg")
        if bucket.shard.grad is None:
            bucket.shard.grad = mine.clone()
        else:
            bucket.shard.grad += mine
        bucket.full = None
        bucket.missing = set(bucket.params)
        # END SOLUTION

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
