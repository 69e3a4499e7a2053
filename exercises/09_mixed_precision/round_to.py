"""Round numbers to a smaller format: bf16, fp16 and two kinds of fp8, bit for bit.

Notebook 09. A floating-point format keeps only some numbers of the real line. Between two powers of
two, from 2^e to 2^(e+1), it has 2^m of them, where m is the number of mantissa bits. They lie
evenly, 2^(e-m) apart. A computer that has no fp8 can still compute as if it had: round each float32
to the nearest number of the format, and go on in float32.

A format is described by four arguments:

    format   mantissa_bits   bias   largest       infinity
    bf16     7               127    3.39e38       True
    fp16     10              15     65504         True
    e5m2     2               15     57344         True
    e4m3fn   3               7      448           False      ("fn": finite numbers, and NaN)

Rules:

- Each number becomes the nearest number of the format. If two are equally near, it becomes the one
  whose mantissa is even: its last bit is 0. Counted in spacings, that is the even integer, which
  `torch.round` chooses too.
- The smallest exponent e of a power of two with full precision is 1 - bias. Below 2^(1-bias) the
  numbers (subnormals) stay as far apart as just above it, 2^(1-bias-m), all the way down to 0.
- A number whose magnitude is larger than `largest` *after* rounding becomes infinity if the format
  has one, and `largest` otherwise; the sign stays. The same holds for infinity itself.
- NaN stays NaN. A zero, or a number that is rounded to zero, keeps its sign: -1e-30 becomes -0.0.
- Your function must work for any four such numbers, so no `.to(torch.float8_e4m3fn)`.

Everything else of torch is allowed, whole tensors at a time. float64 holds every number that occurs
exactly: x, the spacing, and x counted in spacings. `torch.frexp` takes a number apart into a
mantissa from 0.5 to 1 and an exponent; `torch.ldexp(t, n)` is t·2^n.

Your answer may use nothing of `course_lib`.
"""

import torch


def round_to(
    x: torch.Tensor, mantissa_bits: int, bias: int, largest: float, infinity: bool
) -> torch.Tensor:
    """Rounds each number to the nearest one of a format.

    Args:
        x: float32 of any shape, not changed.
        mantissa_bits: m, bits after the leading one.
        bias: 1 - bias is the smallest exponent with full precision.
        largest: the largest finite number of the format.
        infinity: whether the format has infinity.

    Returns:
        float32 of the same shape; every number in it is one of the format.
    """
    raise NotImplementedError("round_to: write your answer here")
