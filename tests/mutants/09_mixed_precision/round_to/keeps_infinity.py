"""mutant: infinity itself stays"""

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
    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
    return torch.where((rounded.abs() > largest) & wide.isfinite(), beyond, rounded).float()
