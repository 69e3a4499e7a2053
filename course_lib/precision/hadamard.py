"""Turn both matrices of a product by the same rotation: the product stays, outliers are spread.

Notebook: 09 Mixed precision and FP8 (nvfp4_quantize).
Paper: NVIDIA, "Pretraining Large Language Models with NVFP4" (2025), section 4.2 and appendix C;
Chee et al., "QuIP" (2023), for rotations before rounding.
Costs 2·n·size operations for n numbers, and no message. All ranks that share a sum must have the
same signs.
The production version is one kernel that turns, scales and rounds while it writes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from course_lib.trace import Refusal


def hadamard(size: int, signs: torch.Tensor | None = None) -> torch.Tensor:
    """An orthogonal matrix of ±1/√size, float32 [size, size]: H·Hᵀ is the identity.

    Every output is a sum of all inputs with other signs. One outlier of size a becomes `size`
    numbers of size a/√size. Random signs keep a fixed pattern of the data from adding up.

    Args:
        size: a power of two.
        signs: ±1 for each row, [size]; all 1 if None.

    Raises:
        Refusal: the size is another number.
    """
    if size.bit_count() != 1 or size < 1:
        raise Refusal(
            f"a Hadamard matrix of {size} rows",
            "no power of two",
            "it is made by doubling, from one row on",
        )
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    matrix = matrix / size**0.5
    return matrix if signs is None else signs[:, None] * matrix


def rotate(x_RC: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Multiplies each run of a row by the matrix; a run has as many numbers as the matrix rows.

    Args:
        x_RC: floats; rows whose length is no multiple are filled up with zeros.
        matrix: orthogonal, [size, size]; then rotate(a)·rotate(b)ᵀ is a·bᵀ.

    Returns:
        float32 [R, C rounded up].
    """
    size = len(matrix)
    runs = F.pad(x_RC.float(), (0, -x_RC.shape[1] % size)).unflatten(1, (-1, size))
    return (runs @ matrix).flatten(1)
