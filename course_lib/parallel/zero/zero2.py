"""ZeRO-2: gradients are cut as well; each bucket is reduce-scattered while backward goes on.

Notebook: 04 ZeRO (Zero2).
Paper: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), section 5.2.
Costs a backward: a reduce-scatter of (N-1)/N·S bytes a rank; a step: an all-gather of as many. With
k backwards a step there are k+1 of these, where ZeRO-1 has 2. For these k-1 more, gradients take
S/N and two buckets instead of S.
The production version (DeepSpeed) sends on a stream of its own, in the order of arrival as here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.parallel.failed_step import Together
from course_lib.parallel.guard import weakly, when_accumulated
from course_lib.parallel.zero.guard import (
    refuse_assigned,
    taken_gradient,
    unfinished_backward,
)
from course_lib.parallel.zero.zero1 import ShardedOptimizer
from course_lib.parallel.zero.zero_bucket import ShardedBucket


class Zero2(ShardedOptimizer):
    """Wraps an optimizer class: 1/N of the state and of the gradients on each rank.

    During a backward each gradient moves into its bucket, and a bucket that is complete is averaged
    over the ranks; of the average this rank keeps its shard, and later backwards add to that. So
    after a backward no parameter has a gradient: `shard()` has them, to be clipped for example.

    Every rank makes the same number of backwards, and each reaches a parameter. Their gradients
    must come in the same order, as they do if all ranks compute the same; ranks that may differ
    need `find_unused_parameters`, with which buckets are sent in one fixed order, so full ones wait
    for the earlier ones.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._waiting: dict[ShardedBucket, set[nn.Parameter]] = {}
        self._bucket_of: dict[nn.Parameter, ShardedBucket] = {}
        self._backward: Callable[[], Any] = lambda: None  # alive while autograd holds its end
        super().__init__(*args, **options)
        self._together = Together(self.group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; makes their shard, and watches their gradients."""
        known = len(self.buckets)
        super().add_param_group(param_group)
        for bucket in self.buckets[known:]:
            for parameter in bucket.parameters:
                self._bucket_of[parameter] = bucket
                when_accumulated(parameter, weakly(self._on_gradient))

    def _on_gradient(self, parameter: Any) -> None:
        if parameter.grad is None:
            raise taken_gradient(parameter, self.group.rank)
        self._refuse_unfinished()
        if not self._waiting:  # the first of this backward
            self._waiting = {bucket: set(bucket.parameters) for bucket in self.buckets}
            end = partial(Zero2._on_end, self)
            torch.autograd.Variable._execution_engine.queue_callback(end)
            self._backward = weakref.ref(end)
        bucket = self._bucket_of[parameter]
        self._used.add(parameter)
        bucket.collect(parameter)
        self._waiting[bucket].discard(parameter)
        if not self._waiting[bucket]:
            self._reduce_complete()

    def _has_raised(self) -> bool:
        """A backward that raises never comes to its end, and autograd forgets what was to be."""
        return bool(self._waiting) and self._backward() is None

    def _refuse_unfinished(self) -> None:
        if self._has_raised():
            raise unfinished_backward(len(self._waiting), self.group.rank)

    def _reduce_complete(self) -> None:
        for bucket, waiting in list(self._waiting.items()):
            if not waiting:
                bucket.reduce()
                del self._waiting[bucket]
            elif self.find_unused_parameters:
                break  # ranks that use different parameters agree on the order alone

    def _on_end(self) -> None:
        """The end of a backward: buckets with parameters that it did not reach."""
        left, self._waiting = self._waiting, {}
        self._refuse_missing([p for waiting in left.values() for p in waiting])
        for bucket in left:
            bucket.reduce()

    def _finish_gradients(self) -> None:
        self._refuse_unfinished()
        refuse_assigned(self._trained(), self.group.rank)
        self._refuse_missing([p for p in self._trained() if p not in self._used])

    def _drop_gradients(self) -> None:
        if self._has_raised():
            self._together.meet()
        self._waiting = {}
        super()._drop_gradients()
