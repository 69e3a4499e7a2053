"""Data parallelism: every rank has the whole model and a part of the batch; gradients are averaged.

Notebook: 02 Data parallel (NaiveDDP, OverlapDDP, BucketedDDP), 03 Gradient accumulation (no_sync).
Paper: Li et al., "PyTorch Distributed" (2020), section 3.2.
Costs for each synchronised backward: 2(N-1)/N·S bytes a rank, S the bytes of the gradients, in as
many all-reduces as there are parameters (naive, overlapping) or buckets; at the start, one
broadcast of parameters and buffers, and one of the buffers in each forward of training.
The production version is C++ (`torch.nn.parallel.DistributedDataParallel`), and has hooks that
compress gradients and a join for ranks that run out of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce
from course_lib.parallel.data.bucket import Bucket, build_buckets
from course_lib.parallel.data.ddp_guard import (
    WHY_BUCKETED,
    WHY_OVERLAP,
    refuse_cast,
    refuse_layout,
)
from course_lib.parallel.data.replica import Replica
from course_lib.parallel.data.sparse import average_sparse, sparse_parameters
from course_lib.parallel.data.unused import agree_used
from course_lib.parallel.guard import book_until_gone


class NaiveDDP(Replica):
    """One blocking all-reduce for each parameter, after the backward.

    Call `synchronize()` between the backward and the optimizer's step. A parameter that had no
    gradient on this rank takes part with zeros, since another rank may have one.
    """

    def synchronize(self) -> None:
        """Averages the gradients over the group.

        Raises:
            CommError: a gradient was changed since the backward, by clipping for example.
        """
        if not self._synchronises:
            return
        self._unfinished = True
        for parameter in self._trained():  # before any is averaged: two may share their storage
            self._guard.refuse_changed(parameter)
        gradients = []
        for parameter in self._trained():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        self._average(gradients)
        self._unfinished = False
        self._guard.clear()

    def _average(self, gradients: Sequence[torch.Tensor]) -> None:
        for gradient in gradients:
            all_reduce(gradient, self.group, "avg")

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        refuse_layout(parameter, self._names)
        super()._on_gradient(parameter)
        self._guard.watch(parameter)
        self.group.ledger.mark(f"ready {self._names[parameter]}")


class _AfterBackward(Replica):
    """Starts all-reduces from hooks, while backward goes on, and waits for them at its end.

    autograd calls a parameter's hook when its gradient is complete. The first hook of a backward
    asks autograd to call `_on_all_gradients` in the end: the training loop needs no line for it.
    """

    def __init__(self, module: nn.Module, group: Group, skip: Iterable[nn.Parameter] = ()) -> None:
        super().__init__(module, group, skip)
        self._under_way: list[Work] = []

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        self._guard.add(parameter)
        super()._on_gradient(parameter)
        if self._synchronises:
            self.group.ledger.mark(f"ready {self._names[parameter]}")
            self._ready(parameter)

    def _on_all_gradients(self) -> None:
        self._complete()
        self._wait()
        self._guard.clear()
        self._finish()
        super()._on_all_gradients()

    def _wait(self) -> None:
        for number, work in enumerate(self._under_way):
            work.wait()
            self.group.ledger.mark(f"arrived {number}")
        self._under_way.clear()

    def _forget_step(self) -> None:
        super()._forget_step()
        self._wait()

    def _launch_all_reduce(
        self, gradient: torch.Tensor, parameters: list[nn.Parameter], op: str
    ) -> None:
        names = ", ".join(self._names[p] for p in parameters)
        self.group.ledger.mark(f"launch {len(self._under_way)}: {names}")
        self._under_way.append(all_reduce(gradient, self.group, op, async_op=True))

    def _ready(self, parameter: nn.Parameter) -> None:
        """A gradient is complete."""
        raise NotImplementedError

    def _complete(self) -> None:
        """Backward has ended; what has not been launched is launched now."""
        raise NotImplementedError

    def _finish(self) -> None:
        """All gradients are averaged."""


class OverlapDDP(_AfterBackward):
    """One all-reduce for each parameter, begun as soon as its gradient is complete.

    Raises (in backward):
        CommError: a parameter got no gradient on this rank. All ranks must launch the same
            all-reduces in the same order, so a model whose used part depends on the data needs
            BucketedDDP, whose order is fixed.
    """

    def _begin(self) -> None:
        self._missing = dict.fromkeys(self._trained())

    def _ready(self, parameter: nn.Parameter) -> None:
        refuse_layout(parameter, self._names)
        self._missing.pop(parameter, None)
        assert parameter.grad is not None
        self._launch_all_reduce(parameter.grad, [parameter], "avg")

    def _complete(self) -> None:
        self._guard.refuse_missing(self._missing, WHY_OVERLAP)


class BucketedDDP(_AfterBackward):
    """One all-reduce for each bucket of gradients, in a fixed order, begun when a bucket is full.

    Gradients are views of the buckets, so nothing is copied back. Those of `sparse=True` embeddings
    stay sparse: their rows are gathered when the backward has ended.

    Args:
        module: any module.
        group: the data-parallel ranks.
        cap: bytes of a bucket.
        first_cap: bytes of the first one.
        find_unused_parameters: allow parameters without a gradient. One that another rank has a
            gradient for takes part with zeros; one that no rank has a gradient for keeps None, as
            in one process. The ranks agree on which in one more all-reduce of a byte a parameter.
        reduce_dtype: what gradients are sent and summed in; None for their own.
        skip: parameters that something else synchronises.

    Raises (in backward):
        CommError: a parameter got no gradient on this rank, and that is not allowed.
    """

    def __init__(
        self,
        module: nn.Module,
        group: Group,
        cap: int = 25 << 20,
        first_cap: int = 1 << 20,
        find_unused_parameters: bool = False,
        reduce_dtype: torch.dtype | None = None,
        skip: Iterable[nn.Parameter] = (),
    ) -> None:
        super().__init__(module, group, skip)
        self.find_unused_parameters = find_unused_parameters
        self.reduce_dtype = reduce_dtype
        tables = sparse_parameters(module)
        self._all = self._trained()  # now: one that is frozen later is unused from then on
        self._sparse = dict.fromkeys(p for p in self._all if p in tables)
        dense = [p for p in self._all if p not in tables]
        self.buckets = build_buckets(dense, cap, first_cap)
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        book_until_gone(self, group, "gradients", sum(bucket.nbytes for bucket in self.buckets))

    def _begin(self) -> None:
        self._waiting = {bucket: dict.fromkeys(bucket.parameters) for bucket in self.buckets}
        self._next = 0

    def _ready(self, parameter: nn.Parameter) -> None:
        refuse_layout(parameter, self._names, sparse=parameter in self._sparse)
        if parameter in self._sparse:
            return
        bucket = self._bucket_of[parameter]
        refuse_cast(parameter, bucket.flat, self._names)
        bucket.adopt(parameter, self.group.size)
        self._waiting[bucket].pop(parameter, None)
        # Only in order: ranks whose gradients come in different orders must still agree.
        while self._next < len(self.buckets) and not self._waiting[self.buckets[self._next]]:
            self._launch(self.buckets[self._next])

    def _launch(self, bucket: Bucket) -> None:
        self._next += 1
        sent = bucket.to_send(self.reduce_dtype)
        if bucket.copied:
            self.group.ledger.add_memory("communication buffers", bucket.copied)
        self._launch_all_reduce(sent, bucket.parameters, "sum")

    def _complete(self) -> None:
        waiting = [p for bucket in self.buckets for p in self._waiting[bucket]]
        waiting += self._sparse
        # One that was used in an earlier backward, inside no_sync, has a gradient to send.
        self._unused = dict.fromkeys(p for p in waiting if p.grad is None)
        if not self.find_unused_parameters:
            self._guard.refuse_missing(self._unused, WHY_BUCKETED)
        for bucket in self.buckets[self._next :]:
            for parameter in self._waiting[bucket]:
                bucket.adopt(parameter, self.group.size)
            self._launch(bucket)

    def _finish(self) -> None:
        self._take_sums()
        for parameter in self._sparse:
            average_sparse(parameter, self.group)
        if not self.find_unused_parameters:
            return
        used = agree_used([p not in self._unused for p in self._all], self.group)
        for parameter, anywhere in zip(self._all, used, strict=True):
            if not anywhere:
                parameter.grad = None

    def _take_sums(self) -> None:
        for bucket in self.buckets:
            if bucket.copied:
                self.group.ledger.add_memory("communication buffers", -bucket.copied)
            bucket.take_sum()

    def _forget_step(self) -> None:
        super()._forget_step()
        self._take_sums()
