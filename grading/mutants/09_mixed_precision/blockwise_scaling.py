"""Wrong and right answers to `blockwise_scaling`: see `course dev show blockwise_scaling`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("blocks_of_two_kinds", ["no block of 128×1"], '''
     rows, columns = block
+    if block not in ((1, 128), (128, 128), (1, 32)):
+        raise ValueError(f"no block of {rows}×{columns}")
'''),
    Wrong("rows_and_columns_exchanged", ["(128×1)", "has the wrong dtype or shape"], '''
     rows, columns = block
+    rows, columns = min(rows, columns), max(rows, columns)
'''),
    Wrong("smallest_amax", ["each scale, divided by what it should be (1×128)"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    scale = amax.clamp(min=1e-12) / torch.finfo(E4M3).max
'''),
    Wrong("changes_x", ["x was changed"], '''
-    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)
+    return x.float().div_(spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)
'''),
    Wrong("dequantize_divides", ["divided by the scale: number = data · scale"], '''
-    return data.float() * spread(scale, block, data.shape)
+    return data.float() / spread(scale, block, data.shape)
'''),
    Wrong("drops_the_end", ["one for each block", "including the smaller ones at the edges"], '''
-    padded = pad(x.float().abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows))
+    high, wide = max(x.shape[0] // rows, 1), max(x.shape[1] // columns, 1)
+    padded = x.float().abs()
+    padded = pad(padded, (0, wide * columns - x.shape[1], 0, high * rows - x.shape[0]))
@@
     """Repeats each scale over the numbers of its block; float32 of the given shape [R, C]."""
+    scale = pad(scale.float()[None], (0, 1, 0, 1), mode="replicate")[0]
'''),
    Wrong("mx_divides_by_finer", ["divided by amax/448", "not by the power of two"], '''
-    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)
+    return (x.float() / spread(amax / 448, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)
'''),
    Wrong("mx_exponent_off_by_one", ["every value is 2 times what it should be"], '''
-    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
+    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 8)
'''),
    Wrong("mx_log2", ["log2 rounds"], '''
-    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
+    scale = torch.exp2(torch.where(amax == 0, 0.0, amax.log2().floor() - 8))
'''),
    Wrong("mx_nearest", ["amax/448 was cast to E8M0"], '''
-    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
+    scale = (amax / torch.finfo(E4M3).max).to(E8M0).float()
'''),
    Wrong("mx_rounds_up", ["the exponent was rounded up"], '''
-    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
+    scale = torch.exp2((amax / torch.finfo(E4M3).max).log2().ceil()).nan_to_num(1.0)
'''),
    Wrong("mx_scale_in_float32", ["the scale (MX)", "has the wrong dtype or shape"], '''
-    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)
+    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale
'''),
    Wrong("one_scale", ["one scale for the whole matrix", "numbers outside the outlier"], '''
-    return padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))
+    amax = padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).amax((1, 3))
+    return amax.max().expand_as(amax).contiguous()
'''),
    Wrong("only_contiguous", ["view size is not compatible"], '''
     rows, columns = block
+    x = x.view(-1).view(x.shape)
'''),
    Wrong("padded_with_ones", ["each scale", "divided by what it should be"], '''
-    padded = pad(x.float().abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows))
+    padded = pad(x.float().abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows), value=1.0)
'''),
    Wrong("repeats_instead", ["the scales are right", "what dequantize gives"], '''
-    tall = scale.float().repeat_interleave(block[0], 0)[: shape[0]]
-    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]
+    tall = scale.float().repeat(block[0], 1)[: shape[0]]
+    return tall.repeat(1, block[1])[:, : shape[1]]
'''),
    Wrong("scale_inverted", ["the scale is inverted"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    scale = torch.where(amax == 0, 1.0, torch.finfo(E4M3).max / amax)
'''),
    Wrong("squares_for_runs", ["the scale (1×128) has the wrong dtype or shape"], '''
     """
+    block = (128, 128) if block == (1, 128) else block
     # BEGIN SOLUTION: quantize
'''),
    Wrong("transposed_blocks", ["the scale", "has the wrong dtype or shape"], '''
-    rows, columns = block
+    columns, rows = block
@@
-    tall = scale.float().repeat_interleave(block[0], 0)[: shape[0]]
-    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]
+    tall = scale.float().repeat_interleave(block[1], 0)[: shape[0]]
+    return tall.repeat_interleave(block[0], 1)[:, : shape[1]]
'''),
    Wrong("whole_blocks_only", ["unflatten", "don't multiply up to the size of dim"], '''
-    padded = pad(x.float().abs(), (0, -x.shape[1] % columns, 0, -x.shape[0] % rows))
+    padded = x.float().abs()
'''),
    Wrong("zero_block", ["a block of zeros was divided by 0"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
+    scale = amax / torch.finfo(E4M3).max
'''),
    Wrong("zero_scale_of_zeros", ["scales are 0", "who divides by such a scale"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
-    return (x.float() / spread(scale, block, x.shape)).to(E4M3), scale
+    scale = amax / torch.finfo(E4M3).max
+    return (x.float() / spread(scale, block, x.shape)).nan_to_num(0.0).to(E4M3), scale
'''),
]

RIGHT = [
    Right("variant_indices", "each number looks up its scale, and the exponent is in the bits of float32", '''
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
    rows, columns = torch.arange(shape[0]) // block[0], torch.arange(shape[1]) // block[1]
    return scale.float()[rows[:, None], columns]


def quantize(x: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and a float32 scale for each block."""
    amax = block_amax(x, block)
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
    return (x.float() / spread(scale, block, x.shape)).to(E4M3), scale


def quantize_mx(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and an E8M0 scale for each run of 32 in a row."""
    amax = block_amax(x, (1, 32))
    scale = ((amax.view(torch.int32) >> 23) - 8).clamp(min=1).to(torch.uint8).view(E8M0)
    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale


def dequantize(data: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The float32 numbers that are meant, [R, C]; `scale` is float32 or E8M0."""
    return data.float() * spread(scale, block, data.shape)
'''),
    Right("variant_loop", "one block after the other", '''
import torch

E4M3 = torch.float8_e4m3fn
E8M0 = torch.float8_e8m0fnu


def block_amax(x: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The largest magnitude in each block, float32 [⌈R/rows⌉, ⌈C/columns⌉]."""
    bands = [band.split(block[1], 1) for band in x.float().abs().split(block[0])]
    return torch.stack([torch.stack([part.max() for part in band]) for band in bands])


def spread(scale: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """Each scale repeated over the numbers of its block, float32 of the given shape."""
    tall = scale.float().repeat_interleave(block[0], 0)[: shape[0]]
    return tall.repeat_interleave(block[1], 1)[:, : shape[1]]


def quantize(x: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and a float32 scale for each block."""
    amax = block_amax(x, block)
    scale = amax.clamp(min=1e-30) / torch.finfo(E4M3).max
    return (x.float() / spread(scale, block, x.shape)).to(E4M3), scale


def quantize_mx(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a matrix 8-bit numbers, and an E8M0 scale for each run of 32 in a row."""
    amax = block_amax(x, (1, 32))
    scale = torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 1 - 8)
    return (x.float() / spread(scale, (1, 32), x.shape)).to(E4M3), scale.to(E8M0)


def dequantize(data: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The float32 numbers that are meant, [R, C]; `scale` is float32 or E8M0."""
    return data.float() * spread(scale, block, data.shape)
'''),
]
