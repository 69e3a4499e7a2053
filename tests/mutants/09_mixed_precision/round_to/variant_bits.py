"""variant: float32's own bits, and an addition for the subnormals"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    bits, cut = x.view(torch.int32), 23 - mantissa_bits
    size = bits & 0x7FFFFFFF
    up = (1 << (cut - 1)) - 1 + ((size >> cut) & 1)
    normal = (((size + up) >> cut) << cut).view(torch.float32)
    magic = 2.0 ** (23 + 1 - bias - mantissa_bits)
    subnormal = (x.abs() + magic) - magic
    rounded = torch.where(x.abs() < 2.0 ** (1 - bias), subnormal, normal)
    rounded[rounded > largest] = torch.inf if infinity else largest
    return torch.where(x.isnan(), x, rounded.copysign(x))
