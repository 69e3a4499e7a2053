"""Wrong and right answers to `round_to`: see `course dev show round_to`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("always_saturates", ["saturated", "in a format that has infinity"], '''
-    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
+    beyond = torch.full_like(wide, largest).copysign(wide)
'''),
    Wrong("bias_off_by_one", ["the bias is off by one"], '''
-    lowest = exponent.clamp(min=1 - bias) - mantissa_bits
+    lowest = exponent.clamp(min=-bias) - mantissa_bits
'''),
    Wrong("flattens", ["the shape x's"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where(rounded.abs() > largest, beyond, rounded).float().flatten()
'''),
    Wrong("flushes_subnormals", ["subnormals are flushed to zero"], '''
     rounded = torch.round(wide / spacing) * spacing
+    rounded = torch.where(wide.abs() < 2.0 ** (1 - bias), rounded * 0, rounded)
'''),
    Wrong("frexp_exponent", ["the leading one is not among the mantissa bits"], '''
-    exponent = torch.frexp(wide).exponent - 1  # wide is 1.something times 2 to this
+    exponent = torch.frexp(wide).exponent
'''),
    Wrong("full_precision_below", ["full precision below"], '''
-    lowest = exponent.clamp(min=1 - bias) - mantissa_bits
+    lowest = exponent - mantissa_bits
'''),
    Wrong("half_first", ["rounded twice", "to fp16 first"], '''
-    wide = x.double()
+    wide = x.half().double()
'''),
    Wrong("in_place", ["x was changed"], '''
     beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
+    x.nan_to_num_()
'''),
    Wrong("infinity_everywhere", ["infinity", "in a format that has none"], '''
-    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
+    beyond = torch.full_like(wide, torch.inf).copysign(wide)
'''),
    Wrong("keeps_infinity", ["infinity itself was kept"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where((rounded.abs() > largest) & wide.isfinite(), beyond, rounded).float()
'''),
    Wrong("leading_one_counted", ["the leading one is not among the mantissa bits"], '''
-    lowest = exponent.clamp(min=1 - bias) - mantissa_bits
+    lowest = exponent.clamp(min=1 - bias) - mantissa_bits + 1
'''),
    Wrong("nan_for_infinity", ["NaN", "in a format that has no infinity"], '''
-    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
+    beyond = torch.full_like(wide, torch.inf if infinity else torch.nan).copysign(wide)
'''),
    Wrong("nan_lost", ["NaN is lost"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where(rounded.abs() <= largest, rounded, beyond).float()
'''),
    Wrong("no_limit", ["above the largest"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return rounded.float()
'''),
    Wrong("returns_float64", ["the dtype stays float32"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where(rounded.abs() > largest, beyond, rounded)
'''),
    Wrong("rounds_twice", ["rounded twice", "to bf16 first"], '''
-    wide = x.double()
+    wide = x.bfloat16().double()
'''),
    Wrong("rounds_up", ["always rounded away from zero"], '''
-    rounded = torch.round(wide / spacing) * spacing
+    rounded = torch.ceil(wide.abs() / spacing).copysign(wide) * spacing
'''),
    Wrong("sign_of_infinity_lost", ["the sign is lost"], '''
-    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
+    beyond = torch.full_like(wide, torch.inf if infinity else largest)
'''),
    Wrong("sign_of_zero_lost", ["the sign of zero is lost"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where(rounded.abs() > largest, beyond, rounded).float() + 0.0
'''),
    Wrong("threshold_before_rounding", ["compared with `largest` before rounding"], '''
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    return torch.where(wide.abs() > largest, beyond, rounded).float()
'''),
    Wrong("ties_away", ["ties go away from zero"], '''
-    rounded = torch.round(wide / spacing) * spacing
+    rounded = torch.floor(wide.abs() / spacing + 0.5).copysign(wide) * spacing
'''),
    Wrong("torch_casts", ["numbers in e3m2"], '''
-    wide = x.double()
-    exponent = torch.frexp(wide).exponent - 1  # wide is 1.something times 2 to this
-    lowest = exponent.clamp(min=1 - bias) - mantissa_bits
-    spacing = torch.ldexp(torch.ones_like(wide), lowest)
-    rounded = torch.round(wide / spacing) * spacing
-    beyond = torch.full_like(wide, torch.inf if infinity else largest).copysign(wide)
-    return torch.where(rounded.abs() > largest, beyond, rounded).float()
+    dtypes = {
+        127: torch.bfloat16,
+        15: torch.float16 if mantissa_bits == 10 else torch.float8_e5m2,
+    }
+    limited = x if infinity else x.clamp(-largest, largest)
+    return limited.to(dtypes.get(bias, torch.float8_e4m3fn)).float()
'''),
    Wrong("truncates", ["truncation"], '''
-    rounded = torch.round(wide / spacing) * spacing
+    rounded = torch.trunc(wide / spacing) * spacing
'''),
]

RIGHT = [
    Right("variant_bits", "float32's own bits, and an addition for the subnormals", '''
import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    bits, cut = x.view(torch.int32), 23 - mantissa_bits
    size = bits & 0x7FFFFFFF
    up = (1 << (cut - 1)) - 1 + ((size >> cut) & 1)
    normal = (((size + up) >> cut) << cut).view(torch.float32)
    magic = 2.0 ** (23 + 1 - bias - mantissa_bits)
    subnormal = (x.abs() + magic) - magic
    rounded = torch.where(x.abs() < 2.0 ** (1 - bias), subnormal, normal)
    rounded[rounded > largest] = torch.inf if infinity else largest
    return torch.where(x.isnan(), x, rounded.copysign(x))
'''),
    Right("variant_frexp", "the mantissa is rounded, subnormals with fewer bits", '''
import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    mantissa, exponent = torch.frexp(x.double())
    bits = mantissa_bits + 1 - (2 - bias - exponent).clamp(min=0)
    kept = torch.where(x.isfinite(), torch.exp2(bits.double()), 1.0)
    rounded = torch.round(mantissa * kept) / kept * torch.exp2(exponent.double())
    if not infinity:
        return torch.clamp(rounded, -largest, largest).float()
    return torch.where(rounded.abs() > largest, rounded.sign() * torch.inf, rounded).float()
'''),
    Right("variant_magic", "the addition of a large number rounds, in float64", '''
import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format."""
    size = x.double().abs()
    power = (size.view(torch.int64) >> 52) - 1023
    power = power.clamp(1 - bias, 200).double() - mantissa_bits
    magic = torch.exp2(power + 52)
    rounded = (size + magic) - magic
    limit = float("inf") if infinity else largest
    rounded = rounded.masked_fill(rounded > largest, limit)
    rounded = rounded.masked_fill(x.isnan(), float("nan"))
    return (torch.where(torch.signbit(x), -1.0, 1.0) * rounded).to(torch.float32)
'''),
]
