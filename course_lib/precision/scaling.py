"""Eight bits have little range, so numbers travel with a scale: one a tensor, or one a block.

Notebook: 09 Mixed precision and FP8 (fp8_linear, blockwise_scaling).
Paper: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 3; DeepSeek-AI,
"DeepSeek-V3" (2024), section 3.3.2; OCP "Microscaling Formats (MX) Specification v1.0", section 6.
Costs n + 4·n/(block's elements) bytes for n numbers (MX: n + n/32), where float32 takes 4n.
The production version finds the largest number in the kernel that wrote the tensor, not afterwards.

Everywhere in this room a scale *multiplies*: number = 8-bit number · scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from course_lib.precision.formats import E4M3FN, E8M0, Format

Block = tuple[int, int]


@dataclass(frozen=True)
class Scaled:
    """A matrix of 8-bit numbers and the scales that they were divided by.

    Attributes:
        data: [R, C] in an 8-bit dtype.
        scale: one for each block, [⌈R/rows⌉, ⌈C/columns⌉]; float32, or E8M0 for MX.
        block: rows and columns that share a scale; blocks at the far ends may be cut off.
    """

    data: torch.Tensor
    scale: torch.Tensor
    block: Block

    def dequantize(self) -> torch.Tensor:
        """The numbers that are meant, float32 [R, C]."""
        return self.data.float() * _spread(self.scale.float(), self.block, self.data.shape)

    def t(self) -> Scaled:
        """The transpose, of the same memory."""
        return Scaled(self.data.t(), self.scale.t(), self.block[::-1])

    @property
    def nbytes(self) -> int:
        """What it takes in memory or in a message, scales included."""
        return self.data.nbytes + self.scale.nbytes


def whole(x_RC: torch.Tensor) -> Block:
    """The block that is the entire matrix, so that it gets one scale."""
    return max(x_RC.shape[0], 1), max(x_RC.shape[1], 1)


def block_amax(x_RC: torch.Tensor, block: Block) -> torch.Tensor:
    """The largest magnitude in each block, float32; NaN if there is one in it."""
    rows, columns = block
    size_R, size_C = x_RC.shape
    padded = F.pad(x_RC.detach().abs(), (0, -size_C % columns, 0, -size_R % rows))
    down, across = padded.shape[0] // rows, padded.shape[1] // columns
    return padded.reshape(down, rows, across, columns).amax((1, 3)).float()


def scale_for(amax: torch.Tensor, format: Format) -> torch.Tensor:
    """The scale that makes `amax` the largest number of a format.

    It is 1 where all is zero, or zeros would be divided by zero, and never so small that float32
    loses it. Infinity and NaN give a scale that makes NaN of the block: an overflow must be seen.
    """
    scale = (amax / format.largest).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(amax == 0, torch.ones_like(scale), scale)


def quantize(x_RC: torch.Tensor, format: Format, scale: torch.Tensor, block: Block) -> Scaled:
    """Divides by the scales and rounds; what is still too large becomes the largest number.

    Args:
        x_RC: floats.
        format: of 8 bits.
        scale: one for each block, as `Scaled` has it.
        block: rows and columns that share a scale.
    """
    small = x_RC.detach().float() / _spread(scale.float(), block, x_RC.shape)
    # torch's casts do as `formats.round_to` does; the tests compare them bit for bit.
    data = small.clamp(-format.largest, format.largest).to(format.dtype)
    return Scaled(data, scale, block)


def quantize_now(x_RC: torch.Tensor, format: Format, block: Block | None = None) -> Scaled:
    """Quantizes with the scales that the matrix itself asks for.

    Args:
        x_RC: floats.
        format: of 8 bits.
        block: rows and columns that share a scale; the whole matrix if None.
    """
    block = block or whole(x_RC)
    return quantize(x_RC, format, scale_for(block_amax(x_RC, block), format), block)


def mx_quantize(x_RC: torch.Tensor, block: int = 32) -> Scaled:
    """MXFP8: E4M3 numbers, and a power of two, kept in E8M0, for each 32 neighbours in a row.

    Dividing by a power of two is exact, and needs no multiplier in hardware. The power is such that
    the largest magnitude comes to lie between 256 and 512; beyond 448 it is clipped, which costs up
    to 1/8 of it.

    Args:
        x_RC: floats; blocks go along the last dim.
        block: numbers that share a scale.
    """
    amax = block_amax(x_RC, (1, block))
    top = torch.frexp(torch.tensor(E4M3FN.largest)).exponent
    exponent = (torch.frexp(amax).exponent - top).clamp(-E8M0.bias, E8M0.bias)
    power = torch.ldexp(torch.ones_like(amax, dtype=torch.float64), exponent).float()
    scale = torch.where(amax.isfinite(), power, torch.nan).to(E8M0.dtype)
    return quantize(x_RC, E4M3FN, scale, (1, block))


def _spread(scale: torch.Tensor, block: Block, shape: torch.Size) -> torch.Tensor:
    """Each scale repeated over the numbers of its block."""
    if scale.numel() == 1:
        return scale
    tall = scale.repeat_interleave(block[0], 0)[: shape[0]]
    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]
