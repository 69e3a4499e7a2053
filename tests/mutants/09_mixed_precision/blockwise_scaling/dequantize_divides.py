"""mutant: divided by the scale: number = data · scale"""

import torch
from torch.nn.functional import pad

E4M3 = torch.float8_e4m3fn
E8M0 = torch.float8_e8m0fnu


def block_amax(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The largest magnitude in each block, float32 [⌈R/rows⌉, ⌈C/columns⌉]."""
    rows, columns = block
    padded = pad(x.float().abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows))
    return padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))


def spread(scale: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """Each scale repeated over the numbers of its block, float32 of the given shape."""
    tall = scale.float().repeat_interleave(block[0], 0)[: shape[0]]
    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]


def quantize(x: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and a float32 scale for each block."""
    amax = block_amax(x, block)
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
    return (x.float() / spread(scale, block, x.shape)).to(E4M3), scale


def quantize_mx(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and an E8M0 scale for each run of 32 in a row."""
    amax = block_amax(x, (1, 32))
    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)


def dequantize(data: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The float32 numbers that are meant, [R, C]; `scale` is float32 or E8M0."""
    return data.float() / spread(scale, block, data.shape)
