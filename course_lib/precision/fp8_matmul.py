"""A product of two scaled matrices, summed in float32: on the GPU's own units, or emulated.

Notebook: 09 Mixed precision and FP8 (fp8_linear).
Source: torch._scaled_mm (cuBLASLt); DeepSeek-AI, "DeepSeek-V3" (2024), section 3.3.2, on sums.
Costs 2·M·N·K operations, at twice the rate of bfloat16 where the GPU has units for it.
The production version has kernels for blocks too (DeepGEMM; cuBLAS for MX and NVFP4 on Blackwell);
here products with more than one scale a matrix are emulated on every device.
"""

from __future__ import annotations

from typing import Literal

import torch

from course_lib.precision.formats import E2M1, E5M2
from course_lib.precision.scaling import Scaled

Way = Literal["scaled_mm", "emulated"]


def choose_way(a_MK: Scaled, b_NK: Scaled) -> Way:
    """How `scaled_matmul` computes a product; the one place that decides.

    `scaled_mm` is the 8-bit unit of a GPU (compute capability 8.9 and above). It wants one scale a
    matrix, a float32, N and K in multiples of 16, and not two matrices of E5M2. `emulated` is a
    float32 product of the dequantized numbers: the same products, exact in float32, at float32's
    speed. torch's own `_scaled_mm` for CPUs does the same inside, so there is nothing to choose.
    A tensor without data is one of a simulated GPU, whose price list says what it has.
    """
    data = a_MK.data
    native = data.is_meta or (
        data.is_cuda and torch.cuda.get_device_capability(data.device) >= (8, 9)
    )
    one_scale = all(q.scale.numel() == 1 and q.scale.dtype == torch.float32 for q in (a_MK, b_NK))
    fits = all(size % 16 == 0 for size in b_NK.data.shape)
    kinds = (data.dtype, b_NK.data.dtype)
    known = E2M1.dtype not in kinds and kinds != (E5M2.dtype, E5M2.dtype)
    return "scaled_mm" if native and one_scale and fits and known else "emulated"


def scaled_matmul(a_MK: Scaled, b_NK: Scaled, way: Way | None = None) -> torch.Tensor:
    """Multiplies each row of one with each row of the other: a · bᵀ, sums over both last dims.

    Args:
        a_MK: any scaled matrix.
        b_NK: another, of as many columns.
        way: how; `choose_way` decides if None.

    Returns:
        [M, N], float32.
    """
    if (way or choose_way(a_MK, b_NK)) == "scaled_mm":
        return torch._scaled_mm(
            a_MK.data.contiguous(),
            b_NK.data.contiguous().t(),
            scale_a=a_MK.scale.view(()),
            scale_b=b_NK.scale.view(()),
            out_dtype=torch.float32,
        )
    with torch.autocast(a_MK.data.device.type, enabled=False):  # or sums were made in bfloat16
        return a_MK.dequantize() @ b_NK.dequantize().t()
