"""Selective checkpointing: keep results that are expensive to compute, recompute the others.

Notebook: 10 Activation checkpointing (selective).
Paper: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
sections 4 and 5.
Costs: what is kept, in memory; everything else of a block's forward once more, in time. Products
with weights are nearly all of the operations and, beside s×s attention, a part of the activations.
The production version (torch.utils.checkpoint.create_selective_checkpoint_contexts) lets a policy
decide by arguments too, and a compiler by a budget of memory.

Shapes: s sequence, b batch, h hidden, a heads, t tensor-parallel ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from course_lib.recompute.checkpoint import RandomState, Recompute
from course_lib.trace.memory import LiveMemory
from course_lib.trace.refusal import Refusal

Policy = Callable[[Any], bool]
Results = deque[tuple[torch.Tensor, int]]

_aten = torch.ops.aten
# torch's counter knows the fused attention of GPUs only. Both take the same shapes.
_CPU_ATTENTION = {
    _aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *rest, **out: sdpa_flop_count(query, key, value)
    ),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, query, key, value, *rest, **out: sdpa_backward_flop_count(
            grad, query, key, value
        )
    ),
}


def keep_products(operation: Any) -> bool:
    """The policy of the paper: products with weights are kept; attention is recomputed.

    Products inside attention are batched (`bmm`), or one fused operation: their scores are s×s.
    """
    return operation in (_aten.mm.default, _aten.addmm.default)


def selective(policy: Policy = keep_products, generators: Sequence[RandomState] = ()) -> Recompute:
    """A checkpoint that keeps the results of some operations, and does not run those again.

    Args:
        policy: which operations' results to keep; each must return one tensor. It is asked about
            `torch.ops.aten` operations, as autograd calls them.
        generators: as for `Recompute`. A kept operation must not draw random numbers, since it
            would not draw them again.

    Returns:
        A callable like `checkpoint`, also for `checkpoint_module`.

    Raises:
        Refusal: (in backward) a kept result was changed in place, or the second run asks for more
            of them than were kept; in a second backward of one forward, none is left.
    """

    def contexts() -> tuple[TorchDispatchMode, TorchDispatchMode]:
        kept: Results = deque()
        return _Keep(policy, kept), _Replay(policy, kept)

    return Recompute(generators, contexts)


class _Keep(TorchDispatchMode):
    """Keeps results, in the order in which they are computed."""

    def __init__(self, policy: Policy, kept: Results) -> None:
        super().__init__()
        self._policy, self._kept = policy, kept

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._policy(func):
            kept = _alias(result)
            self._kept.append((kept, kept._version))
        return result


class _Replay(_Keep):
    """Gives those results back, in the same order, instead of computing them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self._policy(func):
            return func(*args, **(kwargs or {}))
        result, version = self._kept.popleft() if self._kept else (None, 0)
        if result is None or result._version != version:
            raise Refusal(
                f"the result of {func} that was kept for the second run",
                "none is left" if result is None else f"{tuple(result.shape)}, changed in place",
                "a checkpointed function must do the same when it is called again, and not write "
                "into what is kept; and it has one backward, which takes what is kept away",
            )
        return result.detach()


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without the graph; it shares the tensor's count of changes in place.

    The tensor itself refers, through its graph, to what keeps it: a cycle that is never freed.
    """
    # Without this, an alias made below autograd, where a dispatch mode works, has its own count.
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return tensor.detach()


class StepCost(NamedTuple):
    """What a forward and backward take.

    Attributes:
        kept: bytes of tensors made in forward that are alive when it ends.
        peak: the most bytes alive at any time, gradients included.
        flops: operations of matrix products and attention; a multiplication and an addition are
            two.
    """

    kept: int
    peak: int
    flops: int


def measure_step(forward: Callable[[], torch.Tensor]) -> StepCost:
    """Runs a forward, and the backward of what it returns, and measures both.

    It does so twice, since the counter of operations keeps alive what a second run computes.

    Args:
        forward: computes a loss; the gradients of both backwards stay where backward puts them.
    """
    with LiveMemory() as memory:
        loss = forward()
        kept = memory.now
        loss.backward()
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
        forward().backward()
    return StepCost(kept, memory.peak, counter.get_total_flops())


def korthikanti_bytes(
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    *,
    recompute: str = "none",
    tensor: int = 1,
    sequence_parallel: bool = False,
) -> float:
    """Bytes of 16-bit activations of one block on one rank, after the paper's table 2.

    For its block: GELU network of width 4h, dropout with masks of one byte, scores s×s in memory.

    Args:
        sequence: s.
        batch: b.
        hidden: h.
        heads: a.
        recompute: `none`, `selective` (attention's scores) or `full` (all but the input).
        tensor: t.
        sequence_parallel: whether what is outside of the tensor-parallel regions is cut too.

    Raises:
        Refusal: there is no such way to recompute.
    """
    if recompute not in ("none", "selective", "full"):
        raise Refusal(
            f"activations with recompute={recompute!r}",
            "none, selective and full",
            "the paper compares these three",
        )
    whole = sequence * batch * hidden
    if recompute == "full":
        return 2 * whole
    outside = 10 / tensor if sequence_parallel else 10
    scores = 0.0 if recompute == "selective" else 5 * heads * sequence / hidden / tensor
    return whole * (outside + 24 / tensor + scores)
