"""Floating-point formats as data: what numbers they have, and how a number is rounded to one.

Notebook: 09 Mixed precision and FP8 (round_to, stochastic_round).
Paper: IEEE 754-2019, section 4.3.1; Micikevicius et al., "FP8 Formats for Deep Learning" (2022),
section 3; OCP "Microscaling Formats (MX) Specification v1.0" (2023), section 5; Gupta et al., "Deep
Learning with Limited Numerical Precision" (2015), section 3.2, on stochastic rounding.
Costs no message; a number takes 2 bytes (BF16, FP16), 1 (E4M3FN, E5M2) or half of one (E2M1), where
float32 takes 4.
The production version is one instruction of the GPU, or a few shifts and adds on the bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from course_lib.trace import Refusal


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: sign, exponent, mantissa.

    A code is its exponent's bits followed by its mantissa's. The value is (1 + f/2^m)·2^(e-bias),
    f and e the integers in the two fields and m the mantissa's bits; where e is 0 it is
    (f/2^m)·2^(1-bias): the subnormals, evenly spaced down to zero.

    Attributes:
        name: as it is written in papers.
        exponent_bits: of the range: each bit more squares it.
        mantissa_bits: of the precision; 0 means a bare power of two, without sign, zero and
            subnormals (E8M0, which serves as a scale).
        bias: subtracted from the exponent's field.
        has_infinity: whether the codes of the largest exponent are infinity and NaN, as in IEEE
            754; otherwise only the last code of all is NaN, and the rest are numbers.
        dtype: torch's name for it; of E2M1, for two numbers in a byte.
        has_nan: False for a format all of whose codes are numbers.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_infinity: bool
    dtype: torch.dtype
    has_nan: bool = True

    @property
    def finite_codes(self) -> int:
        """How many codes, not counting the sign, are finite numbers; they are the first ones."""
        special = 2**self.mantissa_bits if self.has_infinity else int(self.has_nan)
        return 2 ** (self.exponent_bits + self.mantissa_bits) - special

    def decode(self, code: int) -> float:
        """The number with this code, sign excluded; `code` is below `finite_codes`."""
        exponent, fraction = divmod(code, 2**self.mantissa_bits)
        if not exponent and self.mantissa_bits:  # subnormal: no leading one
            return fraction * self.smallest_subnormal
        return (1 + fraction / 2**self.mantissa_bits) * 2.0 ** (exponent - self.bias)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.decode(self.finite_codes - 1)

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number; the subnormals are spaced as if they had it."""
        return (1 if self.mantissa_bits else 0) - self.bias

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number of full precision."""
        return 2.0**self.smallest_exponent

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number; half of it is rounded to zero."""
        return 2.0 ** (self.smallest_exponent - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next number; rounding errs by half of it, relatively."""
        return 2.0**-self.mantissa_bits


BF16 = Format("bf16", 8, 7, 127, True, torch.bfloat16)
FP16 = Format("fp16", 5, 10, 15, True, torch.float16)
E4M3FN = Format("e4m3fn", 4, 3, 7, False, torch.float8_e4m3fn)
E5M2 = Format("e5m2", 5, 2, 15, True, torch.float8_e5m2)
E2M1 = Format("e2m1", 2, 1, 1, False, torch.float4_e2m1fn_x2, has_nan=False)
E8M0 = Format("e8m0", 8, 0, 127, False, torch.float8_e8m0fnu)
EXPONENT = 0x7FF << 52  # where float64 keeps its exponent


def round_to(
    format: Format,
    x: torch.Tensor,
    saturate: bool | None = None,
    noise: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format; of two equally near, to the even one.

    Between two powers of two the numbers of a format are evenly spaced. So a number counted in
    such spacings needs only be rounded to an integer, and an even integer is an even mantissa.

    With noise the rounding is stochastic: a number that lies a share p of the spacing above its
    lower neighbour goes up with probability p, so that on average it stays where it is.

    Args:
        format: any that has a mantissa.
        x: floats of any shape, float32 or narrower.
        saturate: what becomes of numbers that round to more than the largest one, infinity
            included: the largest (True), as recipes for FP8 have it, or infinity (False), which is
            NaN in a format that has none. None does what torch's cast does: it saturates where
            there is no infinity. (Casts of older versions of torch gave NaN there.)
        noise: evenly distributed from 0 to below 1, of x's shape, such as `torch.rand_like(x)`.

    Returns:
        float32 numbers that the format has, of the same shape; NaN stays NaN, zeros keep the sign.

    Raises:
        Refusal: the format has no mantissa.
    """
    if not format.mantissa_bits:
        raise Refusal(
            f"round numbers to {format.name}",
            "a format of powers of two, without sign and zero",
            "it holds scales, not numbers; mx_quantize chooses them",
        )
    wide = x.double()  # exact, and has room for what float32 would overflow or flush to zero
    power = (wide.view(torch.int64) & EXPONENT).view(torch.float64)  # of two, not above |x|
    spacing = power.clamp(format.smallest_normal, 2.0**127) * format.epsilon
    count = wide / spacing
    whole = torch.round(count) if noise is None else torch.floor(count + noise).copysign(count)
    rounded = whole * spacing
    too_large = rounded.abs() > format.largest
    if saturate is None:
        saturate = not format.has_infinity
    beyond = format.largest if saturate else torch.inf if format.has_infinity else torch.nan
    limit = torch.full_like(wide, beyond).copysign(wide)
    return torch.where(too_large, limit, rounded).float()


def values(format: Format) -> torch.Tensor:
    """All finite numbers of a format, float32, in ascending order, zero once.

    Their distances make the picture of a number line: equal below the smallest normal number,
    doubling at each power of two.
    """
    positive = torch.tensor([format.decode(code) for code in range(format.finite_codes)])
    if not format.mantissa_bits:
        return positive
    return torch.cat([-positive[1:].flip(0), positive])
