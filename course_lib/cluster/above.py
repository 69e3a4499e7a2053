"""What simulated ranks decide above the operations: by function, before torch takes it apart.

Notebook: 13 The mesh (a cluster in the cell).
Source: torch's own rules, of which fused kernel the CPU takes for attention, and of who draws.
Costs a look at the running modes for each call of one of these functions.
The production version (FakeTensorMode) is told the device, and leaves all of this to torch.

A `TorchFunctionMode` would do the same, and make every look at a tensor's shape as slow as an
operation. So the functions themselves are replaced while a simulation runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from course_lib.cluster.dataless import CPU, Dataless, refuse_values
from course_lib.cluster.operations import META, on_device, tensors_in
from course_lib.trace import Refusal

# Functions that use the generator which all ranks of a process would share.
DRAWERS = ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state")
ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@contextmanager
def above_operations() -> Iterator[None]:
    """In the block, on simulated ranks alone, these functions are the simulation's.

    They are numbers that are written down, fused attention, autocast, seeds, and what asks a tensor
    for its values without an operation.
    """
    changed = [
        (torch, "tensor", _written),
        (torch, "as_tensor", _written),
        (F, "scaled_dot_product_attention", _attended),
        (torch, "autocast", _cast),
        (torch.amp, "autocast", _cast),
        *((module, name, _drawn) for name in DRAWERS for module in (torch, torch.random)),
        (torch.testing, "assert_close", _asked),
        *((torch.Tensor, name, _asked) for name in ("tolist", "numpy")),
        (torch.Tensor, "__format__", _formatted),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    for owner, name, make in changed:
        setattr(owner, name, _on_simulated_ranks(getattr(owner, name), make))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _on_simulated_ranks(function: Any, instead: Callable[..., Any]) -> Any:
    """`function`, but for threads of simulated ranks; others may run beside them in a notebook."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        modes = _get_current_dispatch_mode_stack()
        mode = next((each for each in modes if isinstance(each, Dataless)), None)
        return (
            function(*args, **options) if mode is None else instead(mode, function, args, options)
        )

    return call


def _written(_: Dataless, make: Any, args: Any, options: dict[str, Any]) -> torch.Tensor:
    """One number is known, of whatever type; of many floats only the form."""
    result: torch.Tensor = make(*args, **on_device(CPU, options))
    return result.to(META) if result.dim() and result.is_floating_point() else result


def _attended(_: Dataless, func: Any, args: Any, options: dict[str, Any]) -> torch.Tensor:
    """The CPU's fused kernel where it would be used; without a device torch writes it out."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | options
    query, key, value = (given[name] for name in names[:3])
    mask, causal = given.get("attn_mask"), bool(given.get("is_causal"))
    kept = query.is_meta and query.dim() == 4 and query.shape[-1] == value.shape[-1]
    alike = mask is None or (mask.dim() in (2, 4) and not mask.requires_grad and not causal)
    grouped = query.shape[1:-2] == key.shape[1:-2] or given.get("enable_gqa")
    if not (kept and alike and grouped) or given.get("dropout_p"):
        return func(*args, **options)
    if mask is not None and mask.dtype is torch.bool:  # the kernel adds it to the scores
        mask = torch.zeros(mask.shape, dtype=query.dtype)
    result: torch.Tensor = ATTENTION(
        query, key, value, 0.0, causal, attn_mask=mask, scale=given.get("scale")
    )[0]
    return result


def _cast(_: Dataless, _autocast: Any, _args: Any, options: dict[str, Any]) -> Any:
    if options.get("enabled", True):
        raise Refusal(
            "autocast", "tensors without data", "it has no rules for them: convert with .to()"
        )
    return nullcontext()


def _drawn(mode: Dataless, func: Any, args: Any, options: dict[str, Any]) -> Any:
    with mode.own_draws():
        return func(*args, **options)


def _asked(_: Dataless, func: Any, args: Any, options: dict[str, Any]) -> Any:
    """Refuses what needs values, of tensors that have none."""
    unknown = [each for each in tensors_in(args) if each.is_meta and each.numel()]
    if unknown:
        refuse_values(func.__name__, unknown[0])
    return func(*args, **options)


def _formatted(_: Dataless, func: Any, args: Any, options: dict[str, Any]) -> str:
    """A number that nobody knows is written as `?`, as wide as it would be: nothing follows it."""
    tensor, how = args
    if not (how and tensor.is_meta and tensor.dim() == 0):
        return str(func(*args, **options))
    before = how.partition(".")[0]
    aligned = next((letter for letter in before if letter in "<>^"), ">")
    width = "".join(filter(str.isdigit, before)).lstrip("0")
    return format("?", aligned + width)
