"""mutant: not waited for"""

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
        self.arrived.clear()
        self.under_way.clear()
