"""Wrong and right answers to `nvfp4_quantize`: see `course dev show nvfp4_quantize`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("smallest_amax", ["the outer scale (bf16, all tiny)"], '''
-    outer = amax.max().clamp(min=1e-30) / (448 * 6)
+    outer = amax.max().clamp(min=1e-12) / (448 * 6)
'''),
    Wrong("changes_x", ["x was changed"], '''
-    blocks = x.float().contiguous().unflatten(1, (-1, 16))
+    blocks = x.float().unflatten(1, (-1, 16))
@@
-    small = (blocks / (scale.float() * outer)[..., None]).flatten(1)
+    small = blocks.div_((scale.float() * outer)[..., None]).flatten(1)
'''),
    Wrong("outer_without_448", ["the blocks' scales share E4M3's range"], '''
-    outer = amax.max().clamp(min=1e-30) / (448 * 6)
+    outer = amax.max().clamp(min=1e-30) / 6
'''),
    Wrong("scale_a_power_of_two", ["a power of two", "as in MX"], '''
-    scale = (amax / 6 / outer).clamp(2.0**-9, 448.0).to(E4M3)
+    scale = (amax / 6 / outer).clamp(2.0**-9, 448.0).log2().floor().exp2().to(E4M3)
'''),
    Wrong("scale_of_zero", ["the scale of a tiny block is 0"], '''
-    scale = (amax / 6 / outer).clamp(2.0**-9, 448.0).to(E4M3)
+    scale = (amax / 6 / outer).clamp(max=448.0).to(E4M3)
@@
-    code = torch.where(down % 2 == 0, down, up) + 8 * small.signbit()
+    code = torch.where(down % 2 == 0, down, up) % 8 + 8 * small.signbit()
'''),
    Wrong("divides_by_the_unrounded", ["before it was rounded to E4M3"], '''
-    small = (blocks / (scale.float() * outer)[..., None]).flatten(1)
+    small = (blocks / (amax / 6).clamp(min=2.0**-9 * outer)[..., None]).flatten(1)
'''),
    Wrong("ties_up", ["ties go up"], '''
-    code = torch.where(down % 2 == 0, down, up) + 8 * small.signbit()
+    code = up + 8 * small.signbit()
'''),
    Wrong("halves_swapped", ["the halves of the byte are swapped"], '''
-    return (low + 16 * high).to(torch.uint8), scale, outer
+    return (high + 16 * low).to(torch.uint8), scale, outer
'''),
    Wrong("one_code_a_byte", ["codes has the wrong dtype or shape", "two in a byte"], '''
-    low, high = code.unflatten(1, (-1, 2)).unbind(-1)
-    return (low + 16 * high).to(torch.uint8), scale, outer
+    return code.to(torch.uint8), scale, outer
'''),
    Wrong("outer_forgotten_back", ["the outer scale is forgotten"], '''
-    return numbers * (scale.float() * outer).repeat_interleave(16, 1)
+    return numbers * scale.float().repeat_interleave(16, 1)
'''),
]

RIGHT = [
    Right("variant_distances", "the nearest magnitude by the distance to each", '''
import torch

E4M3 = torch.float8_e4m3fn
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
EVEN_FIRST = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


def nvfp4_quantize(x):
    """Makes a matrix numbers of four bits, with scales."""
    x = x.float().contiguous()
    amax = x.abs().reshape(len(x), -1, 16).max(-1).values
    outer = amax.max() / 448 / 6 if amax.any() else torch.tensor(1.0)
    scale = (amax / (6 * outer)).clamp(min=2.0**-9).to(E4M3)
    small = x / (scale.float().repeat_interleave(16, 1) * outer)
    far = (small.abs()[..., None] - MAGNITUDES[EVEN_FIRST]).abs()
    code = EVEN_FIRST[far.argmin(-1)] | (small < 0).long() << 3
    return (code[:, ::2] | code[:, 1::2] << 4).to(torch.uint8), scale, outer


def dequantize(codes, scale, outer):
    """The numbers that are meant."""
    whole = torch.empty(codes.shape[0], 2 * codes.shape[1])
    for half in (0, 1):
        code = (codes >> 4 * half & 15).long()
        whole[:, half::2] = MAGNITUDES[code & 7] * (1 - 2 * (code >> 3))
    return (whole.unflatten(1, (-1, 16)) * scale.float()[..., None] * outer).flatten(1)
'''),
]
