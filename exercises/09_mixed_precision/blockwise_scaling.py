"""One scale for each block of a matrix, so that an outlier spoils only its own block.

Notebook 09. With one scale for the whole tensor, number ≈ 8-bit number · scale, the largest number
decides for all. If one activation is 10,000 and thousands are around 1, e4m3 has only three or four
values left for those thousands. So each block of the matrix gets its own scale. Three ways are in
use:

    blocks of        for             scale               bytes for n numbers
    1 × 128          activations     float32             n + n/32       (DeepSeek-V3)
    128 × 128        weights         float32             n + n/4096     (DeepSeek-V3)
    1 × 32           anything        power of two, E8M0  n + n/32       (MX, Microscaling)

E8M0 is a float with 8 bits of exponent and nothing else: no sign, no mantissa, no zero. Dividing by
such a scale is exact.

Rules
- `data` is e4m3 (largest number 448), in x's shape. `scale` has one number for each block, at the
  block's place: a matrix [⌈R/rows⌉, ⌈C/columns⌉]. The sizes need not be multiples of the block's:
  blocks at the lower and right edges are then smaller, and their scales depend only on the numbers
  that they contain.
- `quantize`: scale = largest magnitude in the block / 448, in float32; divide by it, then cast.
- `quantize_mx`: scale = 2^(e-8), where 2^e is the largest power of two that is not above the
  block's largest magnitude, in `torch.float8_e8m0fnu`. The largest magnitude then lies between 256
  and 512. The cast to e4m3 turns everything beyond 448 into 448.
- A block of zeros stays zeros: 0/0 would be NaN, so its scale may be anything but 0.
- x is a matrix of float32 or bf16, need not be contiguous, and is not changed; compute in float32.

`torch.nn.functional.pad` adds rows and columns of zeros, `unflatten` cuts a dim in two,
`repeat_interleave` repeats elements. `torch.frexp` takes a number apart into a mantissa from 0.5 to
below 1 and an exponent, exactly (`log2` rounds); `torch.ldexp(t, n)` is t·2^n.

Your answer may use nothing of `course_lib`.
"""

import torch
from torch.nn.functional import pad

E4M3 = torch.float8_e4m3fn
E8M0 = torch.float8_e8m0fnu


def block_amax(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Returns the largest magnitude in each block, float32 [⌈R/rows⌉, ⌈C/columns⌉].

    Args:
        x: [R, C].
        block: rows and columns of a block.
    """
    raise NotImplementedError("blockwise_scaling: block_amax")


def spread(scale: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """Repeats each scale over the numbers of its block; float32 of the given shape [R, C]."""
    raise NotImplementedError("blockwise_scaling: spread")


def quantize(x: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts a matrix to 8-bit numbers, with a float32 scale for each block.

    Args:
        x: [R, C].
        block: rows and columns that share a scale: (1, 128), (128, 128), or any others.

    Returns:
        data and scale.
    """
    raise NotImplementedError("blockwise_scaling: quantize")


def quantize_mx(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts a matrix to 8-bit numbers, with an E8M0 scale for each 32 neighbours in a row.

    Args:
        x: [R, C].

    Returns:
        data and scale.
    """
    raise NotImplementedError("blockwise_scaling: quantize_mx")


def dequantize(data: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """Returns the numbers that they stand for, float32 [R, C]; `scale` is float32 or E8M0."""
    raise NotImplementedError("blockwise_scaling: dequantize")
