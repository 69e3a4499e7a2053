"""How large gradients are, as counts; and what becomes of them in a format, after a loss scale.

Paper: Micikevicius et al., "Mixed Precision Training" (2018), section 3.2.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import torch

from course_lib.plot.precision.fates import FATES, fate
from course_lib.plot.precision.number_range import NumberRange
from course_lib.trace import Refusal

PARTS = 16  # bins in a power of two: the edges of FP8's ranges are edges of bins


def magnitudes(tensors: torch.Tensor | Iterable[torch.Tensor]) -> Counter[float]:
    """Counts numbers by their magnitude, sixteen bins in a power of two.

    Counters of ranks and of micro-batches can be added: `sum(counters, Counter())`.

    Args:
        tensors: one or several, of any shapes and floating dtypes.

    Returns:
        Lower edge of a bin to how many numbers are in it. 0.0 has those that are exactly zero,
        infinity those that are infinite or not a number.

    Raises:
        Refusal: something is not a tensor of a floating dtype.
    """
    counts: Counter[float] = Counter()
    for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            raise Refusal(
                "count the magnitudes of gradients",
                str(getattr(tensor, "dtype", type(tensor).__name__)),
                "a gradient is a tensor of floats; unused parameters have none and are left out",
            )
        wide = tensor.detach().double().abs().flatten()
        sized = wide[wide.isfinite() & (wide > 0)]
        counts.update({0.0: int((wide == 0).sum()), math.inf: int((~wide.isfinite()).sum())})
        if len(sized):
            counts.update(_bins(sized))
    return +counts  # without those that are none


def _bins(sized: torch.Tensor) -> dict[float, int]:
    """Lower edge of a bin to how many of these positive finite numbers are in it."""
    front, exponent = torch.frexp(sized)  # front is from 1/2 to 1
    code = exponent.long() * PARTS + ((2 * front - 1) * PARTS).long()
    first = int(code.min())
    many = torch.bincount(code - first).tolist()
    return {
        math.ldexp(PARTS + number % PARTS, number // PARTS - 1) / PARTS: count
        for number, count in enumerate(many, first)
        if count
    }


def sort_out(
    counts: Mapping[float, int], scale: float, each: NumberRange
) -> dict[str, Counter[float]]:
    """Each fate to the powers of two that numbers have after scaling, and how many have them.

    The edge of a bin decides for all of it. That is exact for FP8, but for a number exactly
    halfway to the next; FP16 has a bin whose last 1/128 is too large and is called normal.
    Zeros are left out; what is not finite has the power infinity.
    """
    out: dict[str, Counter[float]] = {name: Counter() for name in FATES}
    for edge, count in counts.items():
        if edge:
            value = edge * scale
            power = math.frexp(value)[1] - 1 if value < math.inf else math.inf
            out[fate(value, each)][power] += count
    return out


def check_counts(counts: Mapping[float, int]) -> None:
    """Refuses counts of nothing.

    Raises:
        Refusal: no number that is finite and not zero, or an edge or a count below zero.
    """
    some = any(count and 0 < edge < math.inf for edge, count in counts.items())
    if not some or not all(edge >= 0 <= count for edge, count in counts.items()):
        raise Refusal(
            f"a histogram of {sum(counts.values())} gradients",
            f"bins from {min(counts, default=0)} to {max(counts, default=0)}",
            "a bin begins at a magnitude, and some must be finite and not zero",
        )
