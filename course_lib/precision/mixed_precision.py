"""Compute in one dtype, keep the weights in another, sum gradients in a third: one policy.

Notebook: 09 Mixed precision and FP8 (reduce_dtype).
Paper: Micikevicius et al., "Mixed Precision Training" (2018), section 3; Higham, "Accuracy and
Stability of Numerical Algorithms" (2002), section 4.2, for the bound.
Costs 2 bytes a parameter more, for the copies that are computed with, from forward to backward;
gradients that are reduced in bf16 have half the bytes of float32: (N-1)/N·S instead of 2(N-1)/N·S.
The production version (torch.autocast) chooses a dtype for each operation, and keeps softmax,
norms and losses in float32.

How a policy is applied:

    one process            model = cast_forward(model, policy)
    DDP                    BucketedDDP(cast_forward(model, policy), group,
                                       reduce_dtype=policy.reduce_dtype)
    FSDP                   FSDP(model, group, units,
                                precision=Precision(policy.param_dtype, policy.reduce_dtype))
    FSDP, FP8 layers       precision=Precision(..., pack=Fp8Pack(model)), as in fp8_gather
    ZeRO, float32 weights  Zero1(params, AdamW, group) over cast_forward(model, policy)
    ZeRO, 16-bit weights   Zero1(params, partial(MasterWeights, optimizer=AdamW), group)

All but the last keep float32 weights, which are their own masters. ZeRO reduces in the dtype of the
parameters: its reduce-scatter has no other. fp16 weights need ZeRO-2, because a loss scaler must
see float32 gradients before the step: `scaler.unscale(zero2.inner.gradients_up())`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Policy:
    """Which dtype is used for what; None leaves it as it is.

    bf16 has the range of float32, and needs nothing else. fp16 has not: scale the loss.

    Attributes:
        param_dtype: of the parameters and inputs that are computed with.
        reduce_dtype: that gradients are summed over ranks in.
        output_dtype: of what the model returns, for the loss.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None


def cast_floating(tree: Any, dtype: torch.dtype | None) -> Any:
    """A tree of anything, its floating tensors in `dtype`; token numbers stay what they are."""

    def one(leaf: Any) -> Any:
        floating = torch.is_tensor(leaf) and leaf.is_floating_point()
        return leaf.to(dtype) if floating else leaf

    return tree_map(one, tree) if dtype else tree


def cast_module(module: nn.Module, policy: Policy) -> None:
    """Has a module compute in `policy.param_dtype`, in place; its parameters stay what they are.

    Parameters and floating inputs are cast in each forward; gradients come out in the parameters'
    own dtype. As in FSDP, buffers are not cast, and a layer that needs float32 inside must say so
    itself, as the course's RMSNorm does. A checkpoint around it casts again when it computes again:
    `checkpoint_module` comes after this.

    Args:
        module: its `forward` is replaced.
        policy: its `reduce_dtype` belongs to the wrapper that reduces.
    """
    module.forward = partial(_compute, module, module.forward, policy)


def cast_forward(module: nn.Module, policy: Policy) -> nn.Module:
    """The same around a module, which itself stays as it is.

    Args:
        module: any module; wrap the result in DDP, not the other way round.
        policy: as for `cast_module`.

    Returns:
        A module with the same parameters, and the same state under the same names.
    """
    return _CastForward(module, policy)


class _CastForward(nn.Module):
    """See `cast_forward`."""

    def __init__(self, module: nn.Module, policy: Policy) -> None:
        super().__init__()
        self.module, self.policy = module, policy
        self.register_load_state_dict_pre_hook(_as_module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own, on copies of its parameters and inputs."""
        return _compute(self.module, self.module, self.policy, *args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own: a checkpoint does not show which dtype computed it."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Loads what `state_dict` gave, or the bare module's."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)


def _as_module(wrapper: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Where a parent loads its own state, the names are the module's own, as they were saved."""
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[f"{prefix}module.{name.removeprefix(prefix)}"] = state_dict.pop(name)


def _compute(
    module: nn.Module, call: Callable[..., Any], policy: Policy, *args: Any, **kwargs: Any
) -> Any:
    """Calls with copies in the place of a module's parameters, and with copies of the inputs."""
    args, kwargs = cast_floating((args, kwargs), policy.param_dtype)
    with _copies_shown(module, policy.param_dtype):
        output = call(*args, **kwargs)
    return cast_floating(output, policy.output_dtype)


@contextmanager
def _copies_shown(module: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Inside, whoever asks a module for a parameter gets its copy in `dtype`."""
    own = [(m._parameters, dict(m._parameters)) for m in module.modules()]
    # The cast is a step of the graph: its backward casts the gradient up, and the parameter,
    # a leaf as before, gets it in float32, where DDP's hooks wait for it.
    copies = {p: cast_floating(p, dtype) for p in module.parameters()}
    try:
        for shown, parameters in own:
            shown.update({n: p if p is None else copies[p] for n, p in parameters.items()})
        yield
    finally:
        for shown, parameters in own:
            shown.update(parameters)


def reduction_bound(magnitudes: torch.Tensor, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    """How far a sum over ranks in `dtype` can be from the exact one, in any order of adding.

    Each term is rounded when it is cast, and at most N-1 times as it is added to others: N factors
    of 1 ± u, with u the unit roundoff (2⁻⁸ for bf16, 2⁻¹¹ for fp16, 2⁻²⁴ for float32). So

        |error| ≤ N·u / (1 - N·u) · (|x₁| + ... + |x_N|) + N·(half the smallest number),

    the last for terms that are so small that the cast rounds them to multiples of that number. It
    grows with N, and it is relative to the terms, not to the sum, which may be much smaller.

    Args:
        magnitudes: |x₁| + ... + |x_N|, for each element.
        ranks: N.
        dtype: that is summed in.

    Returns:
        The bound for each element, float64. Overflow is not covered.
    """
    kind = torch.finfo(dtype)
    roundings = ranks * kind.eps / 2
    underflow = ranks * kind.smallest_normal * kind.eps / 2
    return magnitudes.double() * roundings / (1 - roundings) + underflow
