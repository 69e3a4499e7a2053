"""Cuts a backward in two: gradients of inputs now, those of linear layers' weights when asked.

Notebook: 08 Pipeline parallel (zero_bubble, split_backward).
Paper: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), section 2: the two products of a
linear layer's backward do not depend on each other, and only one of them is waited for.
Costs no communication; the layer's input and its output's gradient are kept until the second half.
The production version (torch.distributed.pipelining) cuts the autograd graph, for any operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


class WeightQueue:
    """Products for weights' gradients that are put off.

    All else (norms, embeddings) gets its gradients with the input half: they are a thousandth of
    the work.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[Callable[[], None]]] = defaultdict(list)
        self._key: Hashable | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, every linear layer is one whose backward can be cut in two."""
        with _Watch(self):
            yield

    @contextmanager
    def put_off(self, key: Hashable) -> Iterator[None]:
        """Backwards inside leave the linear layers' weights for `run(key)`."""
        self._key = key
        try:
            yield
        finally:
            self._key = None

    def run(self, key: Hashable) -> None:
        """Adds to the weights' `grad` what was put off under `key`."""
        for product in self._waiting.pop(key, ()):
            product()

    def add(self, product: Callable[[], None]) -> bool:
        """Keeps a product for later, if backwards are cut in two now; says whether."""
        if self._key is None:
            return False
        self._waiting[self._key].append(product)
        return True


class _Watch(TorchFunctionMode):
    """Sees each call of `linear`, also those of modules it does not know."""

    def __init__(self, queue: WeightQueue) -> None:
        super().__init__()
        self.queue = queue

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """`linear` of weights that are parameters goes the way that can be cut in two."""
        if func is F.linear and not kwargs and torch.is_grad_enabled():
            x, weight, bias = (*args, None)[:3]
            if all(p is None or (p.is_leaf and p.requires_grad) for p in (weight, bias)):
                return _Linear.apply(x, weight, bias, self.queue)
        return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """x·Wᵀ + b, whose backward asks the queue when to compute the gradients of W and b."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, queue: WeightQueue
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.queue = queue
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,) = grads
        x, weight, bias = ctx.saved_tensors

        def product() -> None:
            # A backward from the leaf itself: hooks on parameters run as they always do.
            weight.backward(_rows(grad).T @ _rows(x))
            if bias is not None:
                bias.backward(_rows(grad).sum(0))

        ahead = grad @ weight if ctx.needs_input_grad[0] else None
        if ctx.queue.add(product):
            return ahead, None, None, None
        down = None if bias is None else _rows(grad).sum(0)
        return ahead, _rows(grad).T @ _rows(x), down, None


def _rows(x: torch.Tensor) -> torch.Tensor:
    """All leading dims in one."""
    return x.reshape(-1, x.shape[-1])
