"""Gradient accumulation: one update from many micro-batches, as if they had been one batch.

Notebook: 03 Gradient accumulation (no_sync, accumulate, clip_grad_norm).
Paper: Ott et al., "Scaling Neural Machine Translation" (2018), section 3.4, which accumulates to
train with batches of 400k tokens; Pascanu et al. (2013), section 3.2, for clipping.
Costs for each update: one backward of the wrapped model, and one all-reduce of 8 bytes.
The production version counts tokens while it loads data, and clips with fused kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import CommError, Group, all_reduce
from course_lib.trace import Refusal

Item = TypeVar("Item")
Batch = tuple[torch.Tensor, torch.Tensor]
NONE = -(1 << 40)  # tokens, of a window without micro-batches


# --- the window ----------------------------------------------------------------------------------
def windows(micro_batches: Iterable[Item], k: int) -> Iterator[list[Item]]:
    """Cuts an epoch into lists of `k` micro-batches, one list an update; the last may be shorter.

    Raises:
        Refusal: `k` is below 1.
    """
    if k < 1:
        raise Refusal(
            f"windows of {k} micro-batches",
            "a number below 1",
            "an update needs at least one micro-batch",
        )
    source = iter(micro_batches)
    while window := list(islice(source, k)):
        yield window


def count_tokens(window: Sequence[Batch], ignore_index: int = -100) -> int:
    """Targets in the window's micro-batches that the loss counts."""
    return sum(int((targets != ignore_index).sum()) for _, targets in window)


def accumulate(
    model: nn.Module, window: Sequence[Batch], group: Group, ignore_index: int = -100
) -> torch.Tensor:
    """Forward and backward of one update's micro-batches; gradients are synchronised once.

    Afterwards the gradients are those of

        loss = sum of the losses of all counted tokens / number of all counted tokens

    over all micro-batches and all ranks, however unevenly the tokens lie. A wrapper that averages
    divides by N once more, so each sum is multiplied by N before.

    Args:
        model: wrapped by anything that averages gradients over `group` in backward and has
            `no_sync()`, as BucketedDDP or torch's DDP; a bare module if the group has one rank.
        window: (inputs, targets) of each micro-batch; at least one; ranks may have different
            numbers of them. The model gives logits of the targets' shape and one more dim.
        group: the data-parallel ranks.
        ignore_index: targets of this value are not counted.

    Returns:
        This rank's part of that loss, without a graph; its sum over the group is the loss.

    Raises:
        CommError: a rank's window is empty, no token counts on any rank, or gradients would stay
            local; on every rank.
    """
    # A rank without a micro-batch makes any sum negative, so that all ranks hear of it.
    counted = torch.tensor(
        count_tokens(window, ignore_index) if window else NONE, device=group.device
    )
    all_reduce(counted, group)
    total = int(counted)
    _check(model, window, total, group)
    part = torch.zeros((), device=group.device)
    for number, (inputs, targets) in enumerate(window, 1):
        last = number == len(window)
        # The forward belongs inside as well: torch's DDP decides there whether to synchronise.
        with nullcontext() if last or group.size == 1 else model.no_sync():  # type: ignore[operator]
            loss = token_loss_sum(model(inputs), targets, ignore_index) / total
            (loss * group.size).backward()
        part = part + loss.detach().to(part.device)
    return part


def token_loss_sum(
    logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100
) -> torch.Tensor:
    """Cross-entropy, summed over the counted targets, float32 or wider; 0 if none is counted."""
    logits = logits.float() if logits.dtype.itemsize < 4 else logits
    return F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=ignore_index, reduction="sum"
    )


def _check(model: nn.Module, window: Sequence[Batch], total: int, group: Group) -> None:
    """Refuses what could only end in NaN, in a hang, or in replicas that diverge."""
    if total <= 0:
        some = "a rank that has none" if total else "0 counted tokens in all"
        raise CommError(
            f"accumulate a window over {group.size} ranks (axis {group.axis})",
            f"{len(window)} micro-batches on rank {group.rank}, {some}",
            "a mean over no token is 0/0, and a rank without a backward keeps the others waiting",
        )
    if group.size > 1 and not hasattr(model, "no_sync"):
        raise CommError(
            f"accumulate gradients over {group.size} ranks (axis {group.axis})",
            f"a {type(model).__name__} without no_sync()",
            "nothing would synchronise its gradients: wrap it, as in BucketedDDP(model, group)",
        )


# --- clipping ------------------------------------------------------------------------------------
def clip_grad_norm(
    parameters: Iterable[nn.Parameter] | torch.Tensor,
    max_norm: float,
    group: Group | None = None,
    norm_type: float = 2.0,
    *,
    error_if_nonfinite: bool = False,
    scale: float = 1.0,
) -> torch.Tensor:
    """Scales replicated gradients down, in place, so that their norm is at most `max_norm`.

    Call it once an update, after the synchronisation: then every rank has the same gradients,
    computes the same norm and needs no message. Before it, each rank would clip by its own norm.

    Args:
        parameters: each counts once, those without a gradient are left out; or one by itself.
        max_norm: the norm of all gradients together, as one vector, that is allowed.
        group: the ranks that should have the same gradients. If given, they compare their norms (an
            all-reduce of 16 bytes), so that replicas do not diverge unnoticed.
        norm_type: p of the p-norm; `inf` for the largest absolute value.
        error_if_nonfinite: refuse a norm that is infinite or NaN.
        scale: what the loss was multiplied by; gradients are divided by it first.

    Returns:
        The norm before clipping (after unscaling), as torch.nn.utils.clip_grad_norm_.

    Raises:
        CommError: the ranks of `group` have different norms.
        Refusal: the norm is not finite, and `error_if_nonfinite`.
    """
    each = dict.fromkeys([parameters] if isinstance(parameters, torch.Tensor) else parameters)
    gradients = [p.grad for p in each if p.grad is not None]
    if scale != 1.0:
        for gradient in gradients:
            gradient.div_(scale)
    norm = _total_norm(gradients, norm_type)
    if group is not None:
        _compare_norms(norm, group)
    if error_if_nonfinite and not norm.isfinite():
        raise Refusal(
            f"clip {len(gradients)} gradients to {max_norm}",
            f"a norm of {norm.item()}",
            "infinity scaled down is NaN in every weight: skip this update",
        )
    scale_down(gradients, norm, max_norm)
    return norm


def scale_down(gradients: Iterable[torch.Tensor], norm: torch.Tensor, max_norm: float) -> None:
    """Scales gradients in place so that `norm`, which is theirs, is at most `max_norm`."""
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device, gradient.dtype))


def _total_norm(gradients: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """The norm of all of them as one vector, in float32 or wider."""
    if not gradients:
        return torch.tensor(0.0)
    where = gradients[0].device
    wide = [torch.float32 if g.dtype.itemsize < 4 else None for g in gradients]
    norms = [
        torch.linalg.vector_norm(g, norm_type, dtype=dtype).to(where)
        for g, dtype in zip(gradients, wide, strict=True)
    ]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)


def _compare_norms(norm: torch.Tensor, group: Group) -> None:
    """Raises on every rank if the norms differ by more than rounding explains."""
    size = norm.double().nan_to_num(torch.inf, torch.inf)  # a maximum over ranks may lose NaN
    both: Any = torch.stack([size, -size]).to(group.device)
    all_reduce(both, group, "max")
    high, low = float(both[0]), -float(both[1])
    if high > (1 + 1e-5) * low:  # also where an overflow is on some ranks only
        raise CommError(
            f"clip gradients that are equal on {group.size} ranks (axis {group.axis})",
            f"norms from {low:.6g} to {high:.6g}",
            "clip only synchronised gradients; here each rank would scale by its own factor",
        )
