"""A scale of one byte for 16 or 32 neighbours: with it even four bits can hold a tensor.

Notebook: 09 Mixed precision and FP8 (blockwise_scaling, nvfp4_quantize).
Paper: OCP "Microscaling Formats (MX) Specification v1.0" (2023), section 6.3; Mishra et al.,
"Recipes for Pre-training LLMs with MXFP8" (2025), on rounding the scale up; NVIDIA, "Pretraining
Large Language Models with NVFP4" (2025), section 2 and appendix B.
Costs, for n numbers: MXFP8 n + n/32 bytes, MXFP4 n/2 + n/32, NVFP4 n/2 + n/16 + 4.
The production version (cuBLAS, Transformer Engine, torchao) quantizes in the kernel that wrote the
tensor, and lays the scales out as the tensor cores read them.
"""

from __future__ import annotations

import torch

from course_lib.precision.formats import E2M1, E4M3FN, E8M0, Format
from course_lib.precision.scaling import Block, Scaled, block_amax, quantize, scale_for, whole


def mx_quantize(
    x_RC: torch.Tensor,
    block: int = 32,
    format: Format = E4M3FN,
    round_up: bool = False,
    noise: torch.Tensor | None = None,
) -> Scaled:
    """MX: numbers of a format, and a power of two, kept in E8M0, for each 32 neighbours in a row.

    Dividing by a power of two is exact, and needs no multiplier in hardware. The standard takes
    the power that brings the largest magnitude into the format's last binade: from 256 to 512 in
    E4M3, from 4 to 8 in E2M1. What is then beyond 448, or beyond 6, is clipped: up to 1/8 of it,
    or 1/4. Rounding the scale up clips nothing, and leaves smaller numbers one bit less where the
    two differ.

    Args:
        x_RC: floats; blocks go along the last dim.
        block: numbers that share a scale.
        format: E4M3FN (MXFP8) or E2M1 (MXFP4).
        round_up: takes the smallest power of two with which nothing is clipped.
        noise: rounds the numbers stochastically, as `round_to` does.
    """
    amax = block_amax(x_RC, (1, block))
    top, most = torch.frexp(amax), torch.frexp(torch.tensor(format.largest))
    exponent = top.exponent - most.exponent
    if round_up:
        exponent = exponent + (top.mantissa > most.mantissa)
    exponent = exponent.clamp(-E8M0.bias, E8M0.bias)
    power = torch.ldexp(torch.ones_like(amax, dtype=torch.float64), exponent).float()
    scale = torch.where(amax.isfinite(), power, torch.nan).to(E8M0.dtype)
    return quantize(x_RC, format, scale, (1, block), noise=noise)


def nvfp4_quantize(
    x_RC: torch.Tensor, block: Block = (1, 16), noise: torch.Tensor | None = None
) -> Scaled:
    """NVFP4: E2M1 numbers, an E4M3 scale for each 16 neighbours, and a float32 one for all.

    A scale with a mantissa is at most 1/16 away from the best one, where a power of two may be
    half or twice as large. But E4M3 ends at 448. So the outer scale makes the largest block's
    scale exactly that, and blocks down to 2^-18 of it still have one.

    Args:
        x_RC: floats.
        block: (1, 16) for what changes from row to row; (16, 16) for weights, so that the
            transpose has the same numbers.
        noise: rounds the numbers stochastically, as `round_to` does.
    """
    amax = block_amax(x_RC, whole(x_RC)).sum()  # one number, or none of an empty matrix
    outer = scale_for(amax, E4M3FN) / E2M1.largest
    scale = block_amax(x_RC, block) / E2M1.largest / outer
    scale = scale.clamp(E4M3FN.smallest_subnormal, E4M3FN.largest).to(E4M3FN.dtype)
    return quantize(x_RC, E2M1, scale, block, outer, noise)
