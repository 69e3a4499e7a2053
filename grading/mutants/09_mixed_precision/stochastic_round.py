"""Wrong and right answers to `stochastic_round`: see `course dev show stochastic_round`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("added_in_float32", ["which the format has, is moved", "is rounded up in float32"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    rounded = torch.floor((wide / spacing).float() + noise) * spacing
'''),
    Wrong("up_at_the_fraction_itself", ["which the format has, is moved", "not even 0"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    low = torch.floor(wide / spacing)
+    rounded = (low + (noise <= wide / spacing - low)) * spacing
'''),
    Wrong("nearest", ["the noise has no effect"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    rounded = torch.round(wide / spacing) * spacing
'''),
    Wrong("round_for_floor", ["not its neighbour"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    rounded = torch.round(wide / spacing + noise.double()) * spacing
'''),
    Wrong("probability_reversed", ["up with probability 1 - p instead of p"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    low = torch.floor(wide / spacing)
+    rounded = (low + (noise.double() > wide / spacing - low) * (low != wide / spacing)) * spacing
'''),
    Wrong("a_coin", ["up with probability one half"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    count = wide / spacing
+    rounded = torch.where(noise < 0.5, torch.floor(count), torch.ceil(count)) * spacing
'''),
    Wrong("one_draw_for_all", ["is rounded up with the wrong probability"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    draw = noise.double().flatten()[:1].sum()
+    rounded = torch.floor(wide / spacing + draw) * spacing
'''),
    Wrong("trunc_for_floor", ["is rounded up with the wrong probability"], '''
-    rounded = torch.floor(wide / spacing + noise.double()) * spacing
+    rounded = torch.trunc(wide / spacing + noise.double()) * spacing
'''),
    Wrong("no_subnormals", ["full precision below"], '''
-    exponent = (torch.frexp(wide).exponent - 1).clamp(min=1 - bias)
+    exponent = torch.frexp(wide).exponent - 1
'''),
    Wrong("not_clamped", ["is beyond the largest number"], '''
-    wide = x.double().clamp(-largest, largest)
+    wide = x.double()
'''),
    Wrong("sign_of_zero_lost", ["the sign of a zero is lost"], '''
-    return rounded.copysign(x).float()
+    return (rounded + 0.0).float()
'''),
]

RIGHT = [
    Right("variant_compared", "the noise is compared with the share of the way", '''
import torch


def stochastic_round(
    x: torch.Tensor, noise: torch.Tensor, mantissa_bits: int, bias: int, largest: float
) -> torch.Tensor:
    """Rounds each number to one of its two neighbours in a format."""
    wide = x.double().clamp(-largest, largest)
    exponent = torch.frexp(wide).exponent - 1
    spacing = torch.exp2((exponent.clamp(min=1 - bias) - mantissa_bits).double())
    low = (wide / spacing).floor()
    up = noise < wide / spacing - low
    rounded = ((low + up) * spacing).float()
    return torch.where(x.isnan(), x, rounded.abs().copysign(x))
'''),
    Right("variant_nearest", "noise of half a spacing to each side, then the nearest", '''
import torch


def stochastic_round(
    x: torch.Tensor, noise: torch.Tensor, mantissa_bits: int, bias: int, largest: float
) -> torch.Tensor:
    """Rounds each number to one of its two neighbours in a format."""
    wide = x.double().clamp(-largest, largest)
    _, exponent = torch.frexp(wide)
    spacing = torch.ldexp(torch.ones_like(wide), exponent.clamp(min=2 - bias) - 1 - mantissa_bits)
    count = wide / spacing
    moved = torch.where(count == count.round(), count, count + noise.double() - 0.5)
    return (moved.round() * spacing).copysign(x).float()
'''),
]
