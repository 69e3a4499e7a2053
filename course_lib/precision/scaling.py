"""Eight bits have little range, so numbers travel with a scale: one a tensor, or one a block.

Notebook: 09 Mixed precision and FP8 (fp8_linear, blockwise_scaling).
Paper: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 3; DeepSeek-AI,
"DeepSeek-V3" (2024), section 3.3.2. For MX and NVFP4 see `small_blocks`.
Costs n + 4·n/(block's elements) bytes for n numbers of 8 bits, where float32 takes 4n.
The production version finds the largest number in the kernel that wrote the tensor, not afterwards.

Everywhere in this room a scale *multiplies*: number = 8-bit number · scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from course_lib.precision.formats import E2M1, Format, round_to
from course_lib.precision.packed import pack, unpack

Block = tuple[int, int]


@dataclass(frozen=True)
class Scaled:
    """A matrix of numbers of 8 or 4 bits and the scales that they were divided by.

    Attributes:
        data: [R, C] in an 8-bit dtype; or [R, C/2] for E2M1, two numbers in a byte.
        scale: one for each block, [⌈R/rows⌉, ⌈C/columns⌉]; float32, E8M0 (MX) or E4M3 (NVFP4).
        block: rows and columns that share a scale; blocks at the far ends may be cut off.
        outer: a float32 scalar by which all scales are multiplied; None stands for 1.
    """

    data: torch.Tensor
    scale: torch.Tensor
    block: Block
    outer: torch.Tensor | None = None

    def dequantize(self) -> torch.Tensor:
        """The numbers that are meant, float32 [R, C]."""
        packed = self.data.dtype == E2M1.dtype
        numbers = unpack(self.data) if packed else self.data.float()
        return numbers * _spread(_whole_scale(self.scale, self.outer), self.block, numbers.shape)

    def t(self) -> Scaled:
        """The transpose, of the same memory unless two numbers share a byte."""
        packed = self.data.dtype == E2M1.dtype
        data = pack(unpack(self.data).t()) if packed else self.data.t()
        return Scaled(data, self.scale.t(), self.block[::-1], self.outer)

    @property
    def nbytes(self) -> int:
        """What it takes in memory or in a message, scales included."""
        outer = 0 if self.outer is None else self.outer.nbytes
        return self.data.nbytes + self.scale.nbytes + outer


def whole(x_RC: torch.Tensor) -> Block:
    """The block that is the entire matrix, so that it gets one scale."""
    return max(x_RC.shape[0], 1), max(x_RC.shape[1], 1)


def block_amax(x_RC: torch.Tensor, block: Block) -> torch.Tensor:
    """The largest magnitude in each block, float32; NaN if there is one in it."""
    rows, columns = block
    size_R, size_C = x_RC.shape
    padded, missing = x_RC.detach().abs(), (0, -size_C % columns, 0, -size_R % rows)
    if any(missing):  # torch copies a tensor that is padded with nothing
        padded = F.pad(padded, missing)
    down, across = padded.shape[0] // rows, padded.shape[1] // columns
    return padded.reshape(down, rows, across, columns).amax((1, 3)).float()


def scale_for(amax: torch.Tensor, format: Format) -> torch.Tensor:
    """The scale that makes `amax` the largest number of a format.

    It is 1 where all is zero, or zeros would be divided by zero, and never so small that float32
    loses it. Infinity and NaN give a scale that makes NaN of the block: an overflow must be seen.
    """
    scale = (amax / format.largest).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(amax == 0, torch.ones_like(scale), scale)


def quantize(
    x_RC: torch.Tensor,
    format: Format,
    scale: torch.Tensor,
    block: Block,
    outer: torch.Tensor | None = None,
    noise: torch.Tensor | None = None,
) -> Scaled:
    """Divides by the scales and rounds; what is still too large becomes the largest number.

    Args:
        x_RC: floats; C is even if the format has four bits.
        format: of 8 bits, or E2M1.
        scale: one for each block, as `Scaled` has it.
        block: rows and columns that share a scale.
        outer: as `Scaled` has it.
        noise: rounds stochastically, as `round_to` does; float32 [R, C].
    """
    small = x_RC.detach().float() / _spread(_whole_scale(scale, outer), block, x_RC.shape)
    if noise is not None or format == E2M1:
        small = round_to(format, small, True, noise)
    # torch's casts do as `formats.round_to` does; the tests compare them bit for bit.
    small = small.clamp(-format.largest, format.largest)
    data = pack(small) if format == E2M1 else small.to(format.dtype)
    return Scaled(data, scale, block, outer)


def quantize_now(x_RC: torch.Tensor, format: Format, block: Block | None = None) -> Scaled:
    """Quantizes with the scales that the matrix itself asks for.

    Args:
        x_RC: floats.
        format: of 8 bits.
        block: rows and columns that share a scale; the whole matrix if None.
    """
    block = block or whole(x_RC)
    return quantize(x_RC, format, scale_for(block_amax(x_RC, block), format), block)


def _spread(scale: torch.Tensor, block: Block, shape: torch.Size) -> torch.Tensor:
    """Each scale repeated over the numbers of its block."""
    if scale.numel() == 1:
        return scale
    tall = scale.repeat_interleave(block[0], 0)[: shape[0]]
    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]


def _whole_scale(scale: torch.Tensor, outer: torch.Tensor | None) -> torch.Tensor:
    """What a block's numbers are multiplied by, float32."""
    return scale.float() if outer is None else scale.float() * outer
