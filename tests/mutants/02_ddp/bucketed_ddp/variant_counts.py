"""variant: a class for the bucket, counts instead of sets, the sum divided at the end"""

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
