"""NVFP4: four bits a number, a scale of one byte for each 16, and one float32 for the tensor.

Notebook 09. E2M1 has eight magnitudes. A number's code is a sign bit and the place of its magnitude
among them. Two codes share a byte, the first of the pair in the lower half.

Rules
- outer = amax / (448·6), float32, where amax is the largest magnitude in x. If x is all zeros, any
  positive number will do.
- scale = the largest magnitude of each 16 neighbours in a row / 6 / outer, as e4m3, at least 2^-9.
- code = x / (scale·outer) rounded to the nearest magnitude, with x's sign. If two are equally near,
  take the even place. What is beyond 6 becomes 6. Divide by the scale that you return.
- x is float32 or bf16 and need not be contiguous. Compute in float32.

`torch.searchsorted` counts how many of some sorted numbers lie below each x.

Your answer may use nothing of `course_lib`.
"""

import torch

E4M3 = torch.float8_e4m3fn
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # of E2M1, by code


def nvfp4_quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Makes a matrix numbers of four bits, with scales.

    Args:
        x: [R, C], where C is a multiple of 16.

    Returns:
        Codes, uint8 [R, C/2]; scales, e4m3 [R, C/16]; the outer scale, float32 without dims.
    """
    raise NotImplementedError("nvfp4_quantize: nvfp4_quantize")


def dequantize(codes: torch.Tensor, scale: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
    """The numbers that are meant, float32 [R, C]."""
    raise NotImplementedError("nvfp4_quantize: dequantize")
