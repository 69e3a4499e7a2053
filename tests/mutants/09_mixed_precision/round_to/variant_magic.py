"""variant: the addition of a large number rounds, in float64"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    size = x.double().abs()
    power = (size.view(torch.int64) >> 52) - 1023
    power = power.clamp(1 - bias, 200).double() - mantissa_bits
    magic = torch.exp2(power + 52)
    rounded = (size + magic) - magic
    limit = float("inf") if infinity else largest
    rounded = rounded.masked_fill(rounded > largest, limit)
    rounded = rounded.masked_fill(x.isnan(), float("nan"))
    return (torch.where(torch.signbit(x), -1.0, 1.0) * rounded).to(torch.float32)
