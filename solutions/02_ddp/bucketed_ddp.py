"""Bucketed DDP: gradients live in flat buckets, and a bucket is sent as soon as it is full.

Notebook 02. This is what PyTorch's DistributedDataParallel does: it makes a few large all-reduces
instead of many small ones, and all but the last run while backward still computes.

    ddp = BucketedDDP(model, group, buckets)   # the replicas are equal already
    loss(ddp(x), y).backward()                 # buckets are sent while this runs
    ddp.synchronize()                          # now every gradient is the mean over the group
    optimizer.step()

`buckets` holds every trained parameter exactly once, as `build_buckets` returns it: the gradients
of bucket 0 should be ready first. It is the same on every rank. Rules:

1. Each bucket has one flat tensor of its dtype, made once. After `synchronize()`, in every step,
   the gradient of each parameter is a view of it, with the parameter's shape. So nothing is copied
   back, and `zero_grad(set_to_none=False)` zeroes the bucket itself.
2. After `zero_grad(set_to_none=True)`, autograd makes a new gradient outside the bucket. Copy it
   in, and make the view the gradient again. If the gradient already is the view, leave its value: a
   second step without `zero_grad` adds to it.
3. A bucket is full when all its gradients are ready. Start its all-reduce at that moment, with
   `async_op=True`, but keep to the order of the list: bucket 1 never starts before bucket 0. Even
   if gradients come in different orders on different ranks, all ranks must send the same buckets in
   the same order.
4. A parameter may get no gradient on this rank although it has one on others. Then its bucket is
   not full at the end of backward, and `synchronize()` sends it and all those after it. A parameter
   without a gradient (`grad` is None) counts as zeros, not as what is left in the bucket from the
   step before. A parameter that no rank uses may end with zeros or without a gradient.
5. `synchronize()` waits for all all-reduces that are under way; wait for none of them earlier. It
   is called once after each backward, and then everything is ready for the next step.

Make one all-reduce for each bucket and step, and no other communication in a step. To learn when a
gradient is ready, use `parameter.register_post_accumulate_grad_hook(hook)`: autograd calls
`hook(parameter)` once in each backward, when `parameter.grad` is complete.
"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce


class BucketedDDP(nn.Module):
    """A replica of a module whose gradients are averaged bucket by bucket.

    Args:
        module: this rank's replica, equal to the others'.
        group: the ranks that have one.
        buckets: lists of the module's parameters, each list of one dtype; all are contiguous.
    """

    def __init__(self, module: nn.Module, group: Group, buckets: list[list[nn.Parameter]]) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self.buckets = buckets
        # BEGIN SOLUTION: a flat tensor for each bucket, views of it, and the hooks
        self.flats = [torch.cat([torch.zeros_like(p).flatten() for p in b]) for b in buckets]
        self.views: dict[nn.Parameter, torch.Tensor] = {}
        for bucket, flat in zip(buckets, self.flats, strict=True):  # mutate: same
            pieces = flat.split([p.numel() for p in bucket])
            for parameter, piece in zip(bucket, pieces, strict=True):  # mutate: same
                self.views[parameter] = piece.view(parameter.shape)
                parameter.register_post_accumulate_grad_hook(self.on_gradient)
        self.arrived: set[nn.Parameter] = set()  # mutate: same
        self.under_way: list[Work] = []
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return self.module(*args, **kwargs)

    def on_gradient(self, parameter: nn.Parameter) -> None:
        """Called when a gradient is ready, if you register it as your hook."""
        # BEGIN SOLUTION: take the gradient into its bucket, and start what can be started
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
        # END SOLUTION

    def synchronize(self) -> None:
        """Sends the buckets that are left, and waits; called by every rank after each backward."""
        # BEGIN SOLUTION: send what is left, wait, and begin again
        for parameter in self.views:
            if parameter not in self.arrived:
                self.on_gradient(parameter)
        for work in self.under_way:
            work.wait()
        self.arrived.clear()  # mutate: same
        self.under_way.clear()
        # END SOLUTION
