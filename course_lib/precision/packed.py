"""Two numbers of four bits share a byte: the first of the pair in the lower half.

Notebook: 09 Mixed precision and FP8 (nvfp4_quantize).
Paper: OCP "Microscaling Formats (MX) Specification v1.0" (2023), section 5.3.3, for the codes.
Costs n/2 bytes for n numbers. A code is a sign and the place among E2M1's eight magnitudes.
The production version is one instruction of the GPU that rounds, packs and writes.
"""

from __future__ import annotations

import torch

from course_lib.precision.formats import E2M1, values
from course_lib.trace import Refusal

MAGNITUDES = values(E2M1)[-E2M1.finite_codes :]  # 0, 0.5, 1, 1.5, 2, 3, 4, 6


def pack(numbers_RC: torch.Tensor) -> torch.Tensor:
    """Writes numbers that E2M1 has, float32 [R, C], as torch's `float4_e2m1fn_x2` [R, C/2].

    NaN, for which there is no code, becomes a 6: the scale must tell that it was one.

    Raises:
        Refusal: the number of columns is odd.
    """
    rows, columns = numbers_RC.shape
    if columns % 2:
        raise Refusal(
            f"pack a matrix of {rows} x {columns} numbers of four bits",
            f"{columns} columns",
            "two neighbours in a row share a byte; pad the rows with zeros",
        )
    size = numbers_RC.abs().nan_to_num(E2M1.largest)
    # Through the eight magnitudes run three lines, each half as steep as the one before it.
    place = torch.minimum(torch.minimum(2 * size, size + 2), size / 2 + 4).to(torch.uint8)
    code = place + 8 * numbers_RC.signbit().to(torch.uint8)
    low, high = code.view(rows, columns // 2, 2).unbind(-1)
    return (low + 16 * high).view(E2M1.dtype)


def unpack(data: torch.Tensor) -> torch.Tensor:
    """Reads what `pack` has written: float32 [R, C] of [R, C/2] bytes."""
    both = data.view(torch.uint8)
    code = torch.stack([both % 16, both // 16], -1).flatten(-2).long()
    signed = torch.cat([MAGNITUDES, -MAGNITUDES]).to(data.device)
    return signed[code]
