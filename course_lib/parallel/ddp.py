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

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group, Work, all_reduce, broadcast
from course_lib.parallel.bucket import Bucket, build_buckets


class _Replica(nn.Module):
    """What all three have in common: equal replicas, and when to synchronise.

    Args:
        module: any module; its parameters stay the objects that they are, so an optimizer may be
            built before or after.
        group: the data-parallel ranks.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        self._synchronises = True
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, with the buffers of index 0 in training."""
        if self.training and self._synchronises:
            for buffer in self.module.buffers():
                broadcast(buffer, 0, self.group)
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside only accumulate locally; the next one outside sends the sum."""
        before, self._synchronises = self._synchronises, False
        try:
            yield
        finally:
            self._synchronises = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own, with its own names: a checkpoint does not show how it was trained."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads what `state_dict` gave, or the bare module's."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _trained(self) -> list[nn.Parameter]:
        """Parameters that need a gradient, each once, the same order on every rank."""
        return list(dict.fromkeys(p for p in self.module.parameters() if p.requires_grad))


class NaiveDDP(_Replica):
    """One blocking all-reduce for each parameter, after the backward.

    Call `synchronize()` between the backward and the optimizer's step. A parameter that had no
    gradient on this rank takes part with zeros, since another rank may have one.
    """

    def synchronize(self) -> None:
        """Averages the gradients over the group."""
        if not self._synchronises:
            return
        for parameter in self._trained():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")


class _AfterBackward(_Replica):
    """Starts all-reduces from hooks, while backward goes on, and waits for them at its end.

    autograd calls a parameter's hook when its gradient is complete. The first hook of a backward
    asks autograd to call `_finish` when all is done, so no line is needed in the training loop.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__(module, group)
        self._under_way: list[Work] = []
        self._in_backward = False
        for parameter in self._trained():
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if not self._synchronises:
            return
        if not self._in_backward:
            self._in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_end)
            self._begin()
        self._ready(parameter)  # type: ignore[arg-type]

    def _on_end(self) -> None:
        self._in_backward = False
        self._complete()
        for work in self._under_way:
            work.wait()
        self._under_way.clear()

    def _begin(self) -> None:
        """The first gradient of a backward is there."""

    def _ready(self, parameter: nn.Parameter) -> None:
        """A gradient is complete."""
        raise NotImplementedError

    def _complete(self) -> None:
        """Backward has ended; what has not been launched is launched now."""
        raise NotImplementedError


class OverlapDDP(_AfterBackward):
    """One all-reduce for each parameter, begun as soon as its gradient is complete.

    Raises (in backward):
        CommError: a parameter got no gradient on this rank. All ranks must launch the same
            all-reduces in the same order, so a model whose used part depends on the data needs
            BucketedDDP, whose order is fixed.
    """

    def _begin(self) -> None:
        self._missing = set(self._trained())

    def _ready(self, parameter: nn.Parameter) -> None:
        self._missing.discard(parameter)
        assert parameter.grad is not None
        self._under_way.append(all_reduce(parameter.grad, self.group, "avg", async_op=True))

    def _complete(self) -> None:
        if self._missing:
            names = [n for n, p in self.module.named_parameters() if p in self._missing]
            raise CommError(
                "gradients of all parameters, one all-reduce each",
                f"no gradient for {', '.join(names[:4])} on rank {self.group.rank}",
                "the other ranks may wait for it: use BucketedDDP, or freeze what is not used",
            )


class BucketedDDP(_AfterBackward):
    """One all-reduce for each bucket of gradients, in a fixed order, begun when a bucket is full.

    Gradients are views of the buckets, so nothing is copied back. Parameters without a gradient on
    this rank take part with zeros.

    Args:
        module: any module.
        group: the data-parallel ranks.
        cap: bytes of a bucket.
        first_cap: bytes of the first one.
    """

    def __init__(
        self, module: nn.Module, group: Group, cap: int = 25 << 20, first_cap: int = 1 << 20
    ) -> None:
        super().__init__(module, group)
        self.buckets = build_buckets(self._trained(), cap, first_cap)
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        count = sum(bucket.nbytes for bucket in self.buckets)
        group.ledger.add_memory("gradients", count)

    def _begin(self) -> None:
        self._waiting = {bucket: set(bucket.parameters) for bucket in self.buckets}
        self._next = 0

    def _ready(self, parameter: nn.Parameter) -> None:
        bucket = self._bucket_of[parameter]
        bucket.adopt(parameter)
        self._waiting[bucket].discard(parameter)
        # Only in order: ranks whose gradients come in another order must still agree.
        while self._next < len(self.buckets) and not self._waiting[self.buckets[self._next]]:
            self._launch(self.buckets[self._next])

    def _launch(self, bucket: Bucket) -> None:
        self._next += 1
        self._under_way.append(all_reduce(bucket.flat, self.group, "avg", async_op=True))

    def _complete(self) -> None:
        for bucket in self.buckets[self._next :]:
            for parameter in self._waiting[bucket]:
                bucket.adopt(parameter)
            self._launch(bucket)
