"""variant: the mantissa is rounded, subnormals with fewer bits"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    mantissa, exponent = torch.frexp(x.double())
    bits = mantissa_bits + 1 - (2 - bias - exponent).clamp(min=0)
    kept = torch.where(x.isfinite(), torch.exp2(bits.double()), 1.0)
    rounded = torch.round(mantissa * kept) / kept * torch.exp2(exponent.double())
    if not infinity:
        return torch.clamp(rounded, -largest, largest).float()
    return torch.where(rounded.abs() > largest, rounded.sign() * torch.inf, rounded).float()
