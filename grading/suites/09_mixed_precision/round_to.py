"""round_to: bit for bit what torch's casts give, and formats that torch does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis

EXERCISE = Exercise(
    title="Round to bf16, fp16 and fp8",
    core=True,
    minutes=25,
    order=1,
    library=(),
    hints=(
        "Which power of two is just below |x|? The numbers of the format are 2^(e-m) apart there. "
        "x counted in such spacings is a number that only needs to be rounded to an integer.",
        "`e = torch.frexp(x.double()).exponent - 1`. Below 2^(1-bias) the spacing does not shrink "
        "any further: `e.clamp(min=1 - bias)`. Compare with `largest` after rounding, not before.",
        "`spacing = torch.ldexp(torch.ones_like(wide), e - mantissa_bits)`, `rounded = "
        "torch.round(wide / spacing) * spacing`, and where `rounded.abs() > largest` take infinity "
        "or `largest`, with `copysign(wide)`. Then `.float()`.",
    ),
)


class Format(NamedTuple):
    """What round_to is told of a format, and torch's dtype, if it has one."""

    mantissa_bits: int
    bias: int
    largest: float
    infinity: bool
    dtype: torch.dtype | None


FORMATS = {
    "bf16": Format(7, 127, torch.finfo(torch.bfloat16).max, True, torch.bfloat16),
    "fp16": Format(10, 15, 65504.0, True, torch.float16),
    "e4m3fn": Format(3, 7, 448.0, False, torch.float8_e4m3fn),
    "e5m2": Format(2, 15, 57344.0, True, torch.float8_e5m2),
}
SIX_BITS = {"e3m2": Format(2, 3, 28.0, False, None), "e2m3": Format(3, 1, 7.5, False, None)}
MIDDLES = 2000  # half-way points of a format that are tried


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, cases: list[tuple[torch.Tensor, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Rounds each tensor to its format."""
    found = []
    for x, told in cases:
        given = x.clone()
        rounded = learner.round_to(given, **told)
        kept = torch.equal(given.view(torch.int32), x.view(torch.int32))
        found.append({"rounded": rounded, "kept": kept})
    return found


def drive_shapes(learner: Any, group: Any, x: torch.Tensor, told: dict[str, Any]) -> dict[str, Any]:
    """The same numbers in several shapes: `x` is a matrix."""
    shapes = {"a matrix": x, "its transpose": x.t(), "no numbers": x[:0], "a scalar": x[0, 0]}
    return {name: learner.round_to(each, **told) for name, each in shapes.items()}


# --- what they must bring back -------------------------------------------------------------------
def told(form: Format) -> dict[str, Any]:
    """The arguments of round_to for a format."""
    return {key: value for key, value in form._asdict().items() if key != "dtype"}


def table(form: Format) -> torch.Tensor:
    """The format's numbers from 0 to `largest` in float64, and the one that would be next.

    The place of a number is its code, so even places are even mantissas.
    """
    m = form.mantissa_bits
    numbers = [f * 2.0 ** (1 - form.bias - m) for f in range(2**m)]  # subnormal, and zero
    exponent = 1 - form.bias
    while numbers[-1] <= form.largest:
        numbers += [(2**m + f) * 2.0 ** (exponent - m) for f in range(2**m)]
        exponent += 1
    kept = sum(n <= form.largest for n in numbers)
    return torch.tensor(numbers[: kept + 1], dtype=torch.float64)


Tie = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # code below, past the middle (0.5)


def even(code: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Whether to go up: past the middle, or in it, if the number below has an odd code."""
    return (part > 0.5) | ((part == 0.5) & (code % 2 == 1))


def looked_up(x: torch.Tensor, form: Format, up: Tie = even) -> torch.Tensor:
    """Rounded by looking for the two neighbours in the table: slow and plain."""
    numbers, size = table(form), x.double().abs()
    code = torch.searchsorted(numbers, size, right=True).sub(1).clamp(0, len(numbers) - 2)
    part = (size - numbers[code]) / (numbers[code + 1] - numbers[code])
    rounded = numbers[code + up(code, part)]
    beyond = torch.inf if form.infinity else form.largest
    rounded = torch.where(rounded > form.largest, beyond, rounded)
    return torch.where(x.isnan(), torch.nan, rounded.copysign(x)).float()


def expected(x: torch.Tensor, form: Format) -> torch.Tensor:
    """A cast by torch, and back. What it makes of too large numbers without infinity is clamped."""
    if form.dtype is None:
        return looked_up(x, form)
    limited = x if form.infinity else x.clamp(-form.largest, form.largest)
    return limited.to(form.dtype).float()


def middles(run: Run, form: Format) -> torch.Tensor:
    """Half-way points, and their neighbours in float32: the first, the last and hidden ones."""
    numbers = table(form)
    places = run.integers(0, len(numbers) - 1, MIDDLES)
    places = torch.cat([places, torch.arange(4), len(numbers) - 2 - torch.arange(4)])
    middle = ((numbers[places] + numbers[places + 1]) / 2).float()
    below, above = (torch.nextafter(middle, torch.tensor(to)) for to in (0.0, torch.inf))
    return torch.cat([middle, below, above])


def _inputs(run: Run, form: Format) -> torch.Tensor:
    """All bf16 patterns, random float32 patterns, random sizes of the format, half-way points."""
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32) * 2**16
    noise = run.integers(-(2**31), 2**31, 4000).to(torch.int32)
    exponents = run.integers(-form.bias - form.mantissa_bits, form.bias, 4000).double()
    sized = (run.random(4000) * 2.0**exponents).float()
    near = middles(run, form)
    whole = torch.cat([patterns, noise]).view(torch.float32)
    return torch.cat([whole, sized, near, -near])


Where = Callable[[torch.Tensor, Format], torch.Tensor]
Causes = Callable[[torch.Tensor, Format], dict[str, torch.Tensor]]


def _compare(
    run: Run, where: Where, what: str, likely: Causes, formats: dict[str, Format] = FORMATS
) -> None:
    """Compares all inputs of a kind, bit for bit, format by format."""
    cases = {name: _inputs(run, form) for name, form in {**FORMATS, **SIX_BITS}.items()}
    result = run(
        drive, {"cases": [(x, told({**FORMATS, **SIX_BITS}[name])) for name, x in cases.items()]}
    )
    for (name, x), found in zip(cases.items(), result.outputs[0], strict=True):
        if name in formats:
            form, rounded = formats[name], _formed(run, found["rounded"], x, name)
            run.true(found["kept"], "x was changed", cause="return a new tensor")
            mask = where(x, form)
            _bits(run, x[mask], rounded[mask], form, f"{what} in {name}", likely)


def _formed(run: Run, rounded: Any, x: torch.Tensor, name: str) -> torch.Tensor:
    """What round_to returned, if it is float32 of x's shape."""
    good = isinstance(rounded, torch.Tensor) and rounded.dtype == torch.float32
    good = good and rounded.shape == x.shape
    run.true(
        good,
        f"round_to returns the wrong dtype or shape for {name}",
        expected=f"a tensor float32, {tuple(x.shape)}",
        measured=describe(rounded),
        cause="only the numbers change: the dtype stays float32, the shape x's",
    )
    assert isinstance(rounded, torch.Tensor)
    return rounded


def pattern(x: torch.Tensor) -> torch.Tensor:
    """The bits, with one pattern for all NaN."""
    return torch.where(x.isnan(), torch.nan, x).contiguous().view(torch.int32)


def _bits(
    run: Run, x: torch.Tensor, rounded: torch.Tensor, form: Format, what: str, likely: Causes
) -> None:
    wanted = expected(x, form)
    wrong = (pattern(rounded) != pattern(wanted)).nonzero().flatten()
    if not len(wrong):
        return
    cause = next(
        (
            why
            for why, other in likely(x, form).items()
            if torch.equal(pattern(other), pattern(rounded))
        ),
        "",
    )
    first = int(wrong[0])
    run.fail(
        f"{what}: {len(wrong):,} of {len(x):,} are wrong, the first {x[first].item():.9g}",
        expected=f"{wanted[first].item():.9g}",
        measured=f"{rounded[first].item():.9g}",
        cause=cause,
    )


def smallest(form: Format) -> float:
    """The smallest number of full precision."""
    return float(2.0 ** (1 - form.bias))


def normal(x: torch.Tensor, form: Format) -> torch.Tensor:
    """Which inputs lie between the smallest number of full precision and the largest one."""
    return (x.abs() >= smallest(form)) & (x.abs() <= form.largest)


def in_middle(x: torch.Tensor, form: Format) -> torch.Tensor:
    """Which inputs are half-way between two numbers of the format."""
    halved = form._replace(
        mantissa_bits=form.mantissa_bits + 1, infinity=False, largest=float(table(form)[-1])
    )
    there = looked_up(x, halved) == x
    return there & (looked_up(x, form) != x) & (x.abs() <= form.largest)


def slips(x: torch.Tensor, form: Format) -> dict[str, torch.Tensor]:
    """Other ways to round."""
    more = form._replace(mantissa_bits=form.mantissa_bits + 1)
    less = form._replace(mantissa_bits=form.mantissa_bits - 1)
    return {
        "truncation: the rest is cut off instead of rounded":
            looked_up(x, form, lambda code, part: part > 1),
        "always rounded away from zero": looked_up(x, form, lambda code, part: part > 0),
        "ties go away from zero: if two are equally near, take the even one":
            looked_up(x, form, lambda code, part: part >= 0.5),
        "ties go towards zero: if two are equally near, take the even one":
            looked_up(x, form, lambda code, part: part > 0.5),
        "one bit too few: the leading one is not among the mantissa bits": looked_up(x, less),
        "one bit too many: the spacing is 2^(e-m), with 2^e ≤ |x|": looked_up(x, more),
        "rounded twice, to bf16 first: the second rounding no longer sees the true number":
            expected(x.bfloat16().float(), form),
        "rounded twice, to fp16 first: the second rounding no longer sees the true number":
            expected(x.half().float(), form),
    }  # fmt: skip


@check("the nearest number, at full precision", points=4, code="P")
@diagnosis("between 2^e and 2^(e+1) the numbers are 2^(e-m) apart")
def check_nearest(run: Run) -> None:
    """P: everything between the smallest normal number and the largest, but half-way points."""
    _compare(run, lambda x, form: normal(x, form) & ~in_middle(x, form), "numbers", slips)


@check("half-way points go to the even neighbour", points=3, code="P")
@diagnosis("torch.round on x counted in spacings does it")
def check_ties(run: Run) -> None:
    """P: exactly half-way between two numbers, subnormal ones too."""
    _compare(run, in_middle, "half-way points", slips)


@check("subnormals: evenly spaced down to zero", points=3, code="P")
@diagnosis("below 2^(1-bias) the spacing stays 2^(1-bias-m)")
def check_subnormal(run: Run) -> None:
    """P: everything below the smallest normal number, but zero."""
    _compare(
        run,
        lambda x, form: (x.abs() < smallest(form)) & (x != 0),
        "subnormals",
        lambda x, form: {
            "subnormals are flushed to zero": torch.zeros_like(x).copysign(x),
            "the sign is lost where a number is rounded to zero": expected(x, form) + 0.0,
            "full precision below 2^(1-bias) too: the exponent ends there": looked_up(
                x, form._replace(bias=form.bias + 60)
            ),
            "the bias is off by one: the smallest exponent is 1 - bias": looked_up(
                x, form._replace(bias=form.bias + 1)
            ),
            "the bias is off by one: the smallest exponent is 1 - bias, not 2 - bias": looked_up(
                x, form._replace(bias=form.bias - 1)
            ),
            **slips(x, form),
        },
    )


def overflows(x: torch.Tensor, form: Format) -> dict[str, torch.Tensor]:
    """Other things to make of what is too large."""
    right = expected(x, form)
    limit, endless = (torch.full_like(x, n).copysign(x) for n in (form.largest, torch.inf))
    over = looked_up(x, form._replace(infinity=True)).isinf()
    return {
        "infinity, in a format that has none: such a format saturates":
            torch.where(over, endless, right),
        "saturated, in a format that has infinity": torch.where(over, limit, right),
        "compared with `largest` before rounding: a number that rounds to `largest` is not too "
        "large":
            endless if form.infinity else limit,
        "infinity itself was kept, in a format that has none": torch.where(x.isinf(), x, right),
        "the sign is lost": torch.where(over, right.abs(), right),
        "NaN, in a format that has no infinity: it saturates": torch.where(over, torch.nan, right),
    }  # fmt: skip


@check("too large: infinity, or the largest number", points=3, code="P")
@diagnosis("round first, then compare with `largest`")
def check_overflow(run: Run) -> None:
    """P: everything above the largest number, infinity included."""
    _compare(run, lambda x, form: x.abs() > form.largest, "numbers above the largest", overflows)


@check("zeros keep their sign, NaN stays NaN", points=2, code="P")
def check_special(run: Run) -> None:
    """P: both zeros, and every pattern of NaN."""
    _compare(
        run,
        lambda x, form: (x == 0) | x.isnan(),
        "zeros and NaN",
        lambda x, form: {
            "the sign of zero is lost": torch.where(x.isnan(), x, 0.0),
            "NaN is lost: `NaN > largest` and `NaN <= largest` are both false": torch.where(
                x.isnan(), expected(torch.full_like(x, torch.inf).copysign(x), form), x
            ),
            "NaN is lost: a diverged training would look healthy": x.nan_to_num(),
        },
    )


@check("formats that torch has no dtype for", points=2, code="E")
@diagnosis("only the four numbers may decide")
def check_six_bits(run: Run) -> None:
    """E: e3m2 and e2m3 of six bits, against a table of all their numbers."""
    _compare(run, lambda x, form: ~x.isnan(), "numbers", slips, SIX_BITS)


@check("any shape", points=1, code="E")
def check_shapes(run: Run) -> None:
    """E: a matrix, its transpose, nothing, and a scalar."""
    x = run.random((3, 5), torch.float32)
    shapes = {"a matrix": x, "its transpose": x.t(), "no numbers": x[:0], "a scalar": x[0, 0]}
    found = run(drive_shapes, {"x": x, "told": told(FORMATS["e4m3fn"])}).outputs[0]
    for name, given in shapes.items():
        rounded = _formed(run, found[name], given, name)
        run.equal(rounded, expected(given, FORMATS["e4m3fn"]), f"{name} in e4m3fn")
