"""NVFP4: four bits per number, a one-byte scale for each 16, and one float32 for the tensor.

Notebook 09. E2M1 has eight magnitudes. A number's code is its sign bit (bit 3) and the index of its
magnitude among them (bits 0 to 2). Two codes share a byte, the first of the pair in the lower half.

Rules
- outer = amax / (448·6), float32, where amax is the largest magnitude in x. If x is all zeros, any
  positive number will do.
- scale = the largest magnitude of each 16 neighbours in a row, divided by 6 and by outer, as e4m3,
  and at least 2^-9.
- code = x / (scale·outer) rounded to the nearest magnitude, with x's sign. If two are equally near,
  take the even index. Everything beyond 6 becomes 6. Divide by the scale that you return, after its
  rounding.
- x is float32 or bf16, need not be contiguous, and is not changed. Compute in float32.

`torch.searchsorted(numbers, x)` counts for each x how many of the sorted numbers lie below it.

Your answer may use nothing of `course_lib`.
"""

import torch

E4M3 = torch.float8_e4m3fn
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # of E2M1, by code


def nvfp4_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Converts a matrix to four-bit numbers with two levels of scales.

    Args:
        x: [R, C], where C is a multiple of 16.

    Returns:
        Codes, uint8 [R, C/2]; scales, e4m3 [R, C/16]; the outer scale, float32 without dims.
    """
    raise NotImplementedError("nvfp4_quantize: nvfp4_quantize")


def dequantize(codes: torch.Tensor, scale: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
    """Returns the numbers that codes and scales stand for, float32 [R, C]."""
    raise NotImplementedError("nvfp4_quantize: dequantize")
