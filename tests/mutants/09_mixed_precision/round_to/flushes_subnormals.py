"""mutant: subnormals are flushed to zero"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    wide = x.double()
    exponent = torch.frexp(wide).exponent - 1
    lowest = exponent.clamp(min=1 - bias) - mantissa_bits
    spacing = torch.ldexp(torch.ones_like(wide), lowest)
    rounded = torch.round(wide / spacing) * spacing
    rounded = torch.where(wide.abs() < 2.0 ** (1 - bias), rounded * 0, rounded)
    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
    return torch.where(rounded.abs() > largest, beyond, rounded).float()
