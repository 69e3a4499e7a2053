"""mutant: numbers in e3m2"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    dtypes = {
        127: torch.bfloat16,
        15: torch.float16 if mantissa_bits == 10 else torch.float8_e5m2,
    }
    limited = x if infinity else x.clamp(-largest, largest)
    return limited.to(dtypes.get(bias, torch.float8_e4m3fn)).float()
