"""stochastic_round: one of two neighbours, and with evenly spread noise the mean is the number."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis

EXERCISE = Exercise(
    title="Stochastic rounding: right on average",
    core=False,
    minutes=20,
    order=9,
    library=(),
    hints=(
        "Count x in spacings, as in `round_to`. The count lies between two integers. What must "
        "you add to it before `floor` to get the upper integer with probability p?",
        "If the count is k + p and u is uniform on [0, 1), then k + p + u reaches k + 1 if u ≥ 1 "
        "- p, which holds for a fraction p of all u. `floor` works for negative numbers as well.",
        "`wide = x.double().clamp(-largest, largest)`, the spacing as in `round_to`, then "
        "`torch.floor(wide / spacing + noise.double()) * spacing`, `copysign(x)`, `.float()`.",
    ),
)


class Format(NamedTuple):
    """What stochastic_round is told of a format."""

    mantissa_bits: int
    bias: int
    largest: float


FORMATS = {
    "e4m3fn": Format(3, 7, 448.0),
    "e2m1": Format(1, 1, 6.0),
    "bf16": Format(7, 127, torch.finfo(torch.bfloat16).max),
}
DRAWS = 1000  # evenly spread values of the noise, for each number
COUNT = 60  # numbers of a kind in a format
ROUNDED_UP = (
    "with noise next to 1, the sum of the count and the noise is rounded up in float32: add them "
    "in float64"
)


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, cases: list[tuple[torch.Tensor, torch.Tensor, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Rounds each tensor with its noise."""
    found = []
    for x, noise, told in cases:
        given, drawn = x.clone(), noise.clone()
        rounded = learner.stochastic_round(given, drawn, **told)
        kept = _bits(given, x) and _bits(drawn, noise)
        found.append({"rounded": rounded, "kept": kept})
    return found


def _bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.view(torch.int32), second.view(torch.int32))


# --- what they must bring back -------------------------------------------------------------------
def table(form: Format) -> torch.Tensor:
    """The format's numbers from 0 to `largest`, float64."""
    m = form.mantissa_bits
    numbers = [f * 2.0 ** (1 - form.bias - m) for f in range(2**m)]
    exponent = 1 - form.bias
    while numbers[-1] < form.largest:
        numbers += [(2**m + f) * 2.0 ** (exponent - m) for f in range(2**m)]
        exponent += 1
    return torch.tensor([n for n in numbers if n <= form.largest], dtype=torch.float64)


def neighbours(x: torch.Tensor, form: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of the format around each x, float64: at most it, at least it."""
    numbers = table(form)
    numbers = torch.cat([-numbers[1:].flip(0), numbers])
    inside = x.double().clamp(-form.largest, form.largest)
    low = numbers[torch.searchsorted(numbers, inside, right=True) - 1]
    return low, numbers[torch.searchsorted(numbers, inside)]


def _numbers(run: Run, form: Format) -> dict[str, torch.Tensor]:
    """Numbers of each kind, half of them negative."""
    smallest, numbers = 2.0 ** (1 - form.bias), table(form)
    span = min(10.0, torch.log2(torch.tensor(form.largest)).item() + form.bias - 1)
    size = (smallest if form.bias < 20 else 1.0) * 2.0 ** (
        span * torch.rand(COUNT, dtype=torch.float64, generator=_seeded(run))
    )
    signs = torch.tensor([1.0, -1.0]).repeat(COUNT // 2)
    below = smallest * (0.02 + 0.96 * torch.arange(COUNT) / COUNT)
    picks = numbers[run.integers(0, len(numbers), COUNT)]
    beyond = form.largest * torch.tensor([1.0001, 1.04, 1.5, torch.inf]).repeat(COUNT // 4)
    beyond = beyond.clamp(max=torch.finfo(torch.float32).max).double()
    beyond[3::4] = torch.inf
    kinds = {"normal": size, "subnormal": below.double(), "exact": picks, "beyond": beyond}
    return {kind: (part * signs).float() for kind, part in kinds.items()}


def _seeded(run: Run) -> torch.Generator:
    return torch.Generator().manual_seed(run.number(0, 2**31))


def _found(run: Run) -> dict[tuple[str, str], tuple[torch.Tensor, torch.Tensor, Format]]:
    """By format and kind: the numbers [n], what became of them [draws + 2, n], and the format.

    Each number meets every value of a fine comb of noise once, in an order of its own; and last
    the largest noise there is, and the smallest.
    """
    comb = ((torch.arange(DRAWS) + 0.5) / DRAWS)[:, None].float()
    least = torch.zeros(1, COUNT)
    most = torch.nextafter(least + 1, least)
    keys, cases = [], []
    for name, form in FORMATS.items():
        for kind, x in _numbers(run, form).items():
            shift = torch.arange(len(x)) * 7
            drawn = comb[(torch.arange(DRAWS)[:, None] + shift) % DRAWS, 0]
            noise = torch.cat([drawn, most, least])
            keys.append((name, kind, x, form))
            cases.append((x.expand(len(noise), -1).contiguous(), noise, form._asdict()))
    outputs = run(drive, {"cases": cases}).outputs[0]
    found = {}
    for (name, kind, x, form), got in zip(keys, outputs, strict=True):
        rounded = _formed(run, got["rounded"], (DRAWS + 2, len(x)), f"{kind} numbers in {name}")
        run.true(got["kept"], "x or noise was changed", cause="return a new tensor")
        found[name, kind] = (x, rounded, form)
    return found


def _formed(run: Run, rounded: Any, shape: tuple[int, ...], what: str) -> torch.Tensor:
    good = isinstance(rounded, torch.Tensor) and rounded.dtype == torch.float32
    run.true(
        good and tuple(rounded.shape) == shape,
        f"{what}: the wrong dtype or shape",
        expected=f"a tensor float32, {shape}",
        measured=describe(rounded),
        cause="only the numbers change: the dtype stays float32, the shape x's",
    )
    assert isinstance(rounded, torch.Tensor)
    return rounded


def _only_neighbours(run: Run, kind: str, causes: dict[str, Any]) -> None:
    """Fails with the first number that became something else than a neighbour."""
    for name in FORMATS:
        x, rounded, form = _found(run)[name, kind]
        low, high = neighbours(x, form)
        wrong = (rounded != low) & (rounded != high)
        if not wrong.any():
            continue
        draw, at = (int(place) for place in wrong.nonzero()[0])
        run.fail(
            f"{name}: {x[at]:.6g} becomes a number that is not its neighbour",
            expected=f"{low[at]:.6g} or {high[at]:.6g}",
            measured=f"{rounded[draw, at]:.6g}",
            cause=next((why for why, holds in causes.items() if holds(x, rounded, form)), ""),
        )


def _right_mean(run: Run, kind: str) -> None:
    """The mean over the comb is the number, within two of its teeth."""
    for name in FORMATS:
        x, rounded, form = _found(run)[name, kind]
        rounded = rounded[:DRAWS]
        low, high = neighbours(x, form)
        spacing = (high - low).clamp(min=1e-300)
        up = (rounded.double().mean(0) - low) / spacing
        share = (x.double() - low) / spacing
        wrong = ((up - share).abs() > 2.5 / DRAWS) & (high > low)
        if not wrong.any():
            continue
        guesses = {
            "rounded to the nearest: the noise has no effect": (share > 0.5).double(),
            "always down: the noise has no effect": torch.zeros_like(share),
            "up with probability 1 - p instead of p": 1 - share,
            "half a spacing too high: `round` already adds a half": (share + 0.5).clamp(max=1.5),
            "p is a fraction of the magnitude: for negative numbers, up is towards zero":
                torch.where(x > 0, share, 1 - share),
            "up with probability one half, wherever the number lies": torch.full_like(share, 0.5),
        }  # fmt: skip
        at = int(wrong.nonzero()[0])
        run.fail(
            f"{name}: {x[at]:.6g} is rounded up with the wrong probability",
            expected=f"{share[at]:.3f}, so that the mean is {x[at]:.6g}",
            measured=f"{up[at]:.3f}, the mean is {rounded[:, at].double().mean():.6g}",
            cause=next((w for w, other in guesses.items() if bool(((up - other)[high > low].abs()
                        < 4 / DRAWS).all())), ""),
        )  # fmt: skip


def _flushed(x: torch.Tensor, rounded: torch.Tensor, form: Format) -> bool:
    """Whether all became zero or the smallest normal number."""
    smallest = 2.0 ** (1 - form.bias)
    return bool(((rounded == 0) | (rounded.abs() == smallest)).all())


def _finer(x: torch.Tensor, rounded: torch.Tensor, form: Format) -> bool:
    """Whether the numbers are those of a format with more exponents."""
    longer = form._replace(bias=form.bias + 40) if form.bias < 20 else form
    low, high = neighbours(x, longer)
    return bool(((rounded == low) | (rounded == high)).all())


@check("full precision: one of the two neighbours", points=3, code="E")
@diagnosis("between 2^e and 2^(e+1) the numbers are 2^(e-m) apart")
def check_neighbours(run: Run) -> None:
    """E: between the smallest normal number and the largest."""
    _only_neighbours(run, "normal", {
        "nothing was rounded": lambda x, rounded, form: (rounded == x).all(),
        "the result is one spacing too far": lambda x, rounded, form: (
            (rounded - x).abs() < 2.1 * (neighbours(x, form)[1] - neighbours(x, form)[0])
        ).all(),
    })  # fmt: skip


@check("the average is the number itself", points=5, code="E")
@diagnosis("up with probability p, the fraction of the way from the lower to the upper neighbour")
def check_mean(run: Run) -> None:
    """E: a thousand evenly spread values of the noise for each number."""
    _right_mean(run, "normal")


@check("subnormals: the spacing stays, and the average is right", points=3, code="E")
@diagnosis("below 2^(1-bias) the spacing stays 2^(1-bias-m)")
def check_subnormal(run: Run) -> None:
    """E: below the smallest normal number."""
    _only_neighbours(run, "subnormal", {
        "subnormals are flushed to zero": _flushed,
        "full precision below 2^(1-bias) too: the exponent ends there": _finer,
    })  # fmt: skip
    _right_mean(run, "subnormal")


@check("a number of the format stays as it is", points=2, code="E")
def check_exact(run: Run) -> None:
    """E: whatever the noise is."""
    for name in FORMATS:
        x, rounded, _ = _found(run)[name, "exact"]
        moved = (rounded != x).nonzero()
        if len(moved):
            draw, at = (int(place) for place in moved[0])
            run.fail(
                f"{name}: {x[at]:.6g}, which the format has, is moved",
                expected=f"{x[at]:.6g}",
                measured=f"{rounded[draw, at]:.6g}",
                cause=ROUNDED_UP
                if draw == DRAWS
                else "p is 0 there: no noise below 1 may move it, not even 0",
            )


@check("too large: the largest number", points=2, code="E")
@diagnosis("clamp to ±largest; there is no neighbour above it")
def check_overflow(run: Run) -> None:
    """E: beyond the largest number, infinity included."""
    for name in FORMATS:
        x, rounded, form = _found(run)[name, "beyond"]
        right = torch.full_like(x, form.largest).copysign(x)
        wrong = (rounded != right).nonzero()
        if len(wrong):
            draw, at = (int(place) for place in wrong[0])
            run.fail(
                f"{name}: {x[at]:.6g} is beyond the largest number",
                expected=f"{right[at]:.6g}",
                measured=f"{rounded[draw, at]:.6g}",
                cause=ROUNDED_UP if draw == DRAWS else "",
            )


@check("NaN, zeros and any shape", points=2, code="E")
def check_special(run: Run) -> None:
    """E: a matrix that is not contiguous, with NaN, both zeros, and numbers that become zero."""
    x = torch.tensor([[torch.nan, 0.0, -0.0], [1e-30, -1e-30, 1.0]]).t().contiguous()
    noise = torch.zeros_like(x) + 0.25
    told = FORMATS["e4m3fn"]._asdict()
    cases = [(x.t(), noise.t(), told), (x[:0], noise[:0], told), (x[2, 1], noise[2, 1], told)]
    found = run(drive, {"cases": cases}).outputs[0]
    got = _formed(run, found[0]["rounded"], (2, 3), "a transpose")
    for other, shape in zip(found[1:], [(0, 2), ()], strict=True):
        _formed(run, other["rounded"], shape, "no numbers, or one")
    run.true(
        bool(got[0, 0].isnan()),
        "NaN does not stay NaN",
        expected="nan",
        measured=f"{got[0, 0]:.6g}",
        cause="a diverged training would look healthy",
    )
    signs = got.signbit()[[0, 0, 1], [1, 2, 0]].tolist()
    run.true(
        signs == [False, True, False],
        "the sign of a zero is lost",
        expected="0, -0, 0",
        measured=", ".join("-0" if sign else "0" for sign in signs),
        cause="`copysign(x)` gives the result x's sign",
    )
