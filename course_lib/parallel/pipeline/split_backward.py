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
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.amp.autocast_mode import is_autocast_available
from torch.overrides import TorchFunctionMode


class WeightQueue:
    """Products for weights' gradients that are put off.

    Everything else (norms, embeddings) gets its gradients with the input half: these are a
    thousandth of the work.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[Callable[[], None]]] = defaultdict(list)
        self._key: Hashable | None = None
        self._watch = _Watch(self)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, the backward of every linear layer can be cut in two.

        Backwards belong inside too, if a checkpoint is to run the same forward again there.
        """
        with self._watch:
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
        """Computes what was put off under `key`, and adds it to the weights' `grad`."""
        for product in self._waiting.pop(key, ()):
            product()

    def add(self, product: Callable[[], None]) -> None:
        """Keeps a product for later if backwards are cut in two now, else runs it."""
        if self._key is None:
            product()
        else:
            self._waiting[self._key].append(product)


class _Watch(TorchFunctionMode):
    """Sees each call of `linear`, also those of modules it does not know."""

    def __init__(self, queue: WeightQueue) -> None:
        super().__init__()
        self.queue = queue

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """`linear` with weights that are parameters becomes one that can be cut in two.

        Copies of parameters in another dtype are taken for these. Where the input needs no gradient
        there is nothing to cut, and what `torch.autocast` casts inside of `linear` stays whole.
        """
        if func is F.linear and not kwargs and torch.is_grad_enabled():
            x, weight, bias = (*args, None)[:3]
            given = [weight] if bias is None else [weight, bias]
            leaves = [leaf for leaf in map(_parameter, given) if leaf is not None]
            cut = x.requires_grad and weight.dim() == 2 and len(leaves) == len(given)
            if cut and not _in_autocast(x.device.type):
                return _Linear.apply(x, _Weights(*given), _Weights(*leaves), self.queue)
        return func(*args, **(kwargs or {}))


def _parameter(weight: torch.Tensor) -> torch.Tensor | None:
    """The parameter that a weight is, or that it was cast from; None if neither, or if frozen."""
    node = weight.grad_fn
    if node is not None and node.name() == "ToCopyBackward0":
        weight = getattr(node.next_functions[0][0], "variable", weight)
    return weight if weight.is_leaf and weight.requires_grad else None


def _in_autocast(device: str) -> bool:
    """Whether `torch.autocast` is on; a simulated device knows none."""
    return is_autocast_available(device) and torch.is_autocast_enabled(device)


class _Weights(NamedTuple):
    """Weight and bias, wrapped so that autograd does not see them.

    It would call the parameters' hooks in the first half already, with no gradient.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None


class _Linear(torch.autograd.Function):
    """x·Wᵀ + b, whose backward leaves the gradients of W and b to the queue."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, given: _Weights, leaves: _Weights, queue: WeightQueue
    ) -> torch.Tensor:
        ctx.save_for_backward(x, given.weight)
        ctx.leaves, ctx.queue = leaves, queue
        return F.linear(x, *given)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,) = grads
        (x, weight), leaves = ctx.saved_tensors, ctx.leaves

        def product() -> None:
            # A backward from the leaf itself: hooks on parameters run as they always do.
            leaves.weight.backward((_rows(grad).T @ _rows(x)).to(leaves.weight))
            if leaves.bias is not None:
                leaves.bias.backward(_rows(grad).sum(0).to(leaves.bias))

        ctx.queue.add(product)
        return grad @ weight, None, None, None


def _rows(x: torch.Tensor) -> torch.Tensor:
    """All leading dims in one."""
    return x.reshape(-1, x.shape[-1])
