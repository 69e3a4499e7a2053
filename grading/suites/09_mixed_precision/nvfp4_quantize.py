"""nvfp4_quantize: both scales, codes bit for bit, two in a byte, and back."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis

EXERCISE = Exercise(
    title="NVFP4: four bits, two scales",
    core=False,
    minutes=35,
    order=8,
    defines=("nvfp4_quantize", "dequantize"),
    library=(),
    hints=(
        "There are four steps: one number for the tensor, one for each block, one index among "
        "eight magnitudes for each number, and two codes in each byte. `x.float().unflatten(1, "
        "(-1, 16))` makes the blocks.",
        "Halfway between two magnitudes lies a border. `torch.searchsorted(borders, "
        "small.abs())` counts the borders below, which is the index; with `right=True`, the "
        "index of a number on a border is one higher. Take whichever is even; elsewhere both are "
        "the same.",
        "`outer = amax.max().clamp(min=1e-30) / 2688`, `scale = (amax / 6 / outer).clamp(2.0**-9, "
        "448).to(torch.float8_e4m3fn)`, `code = place + 8 * small.signbit()`, and the byte is "
        "`code[:, ::2] + 16 * code[:, 1::2]`, as uint8.",
    ),
)

E4M3 = torch.float8_e4m3fn
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
Coded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # codes, scales, the outer scale


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[torch.Tensor]) -> list[dict[str, Any]]:
    """Quantizes transposes of matrices, and dequantizes what came of it."""
    found = []
    for given in cases:
        x = given.clone().t()
        parts = learner.nvfp4_quantize(x)
        good = isinstance(parts, (tuple, list)) and len(parts) == 3
        codes, scale, outer = parts if good else (parts, None, None)
        right = good and isinstance(codes, torch.Tensor) and codes.dtype == torch.uint8
        right = right and codes.shape == (len(x), x.shape[1] // 2)
        whole = learner.dequantize(codes, scale, outer) if right else None
        kept = torch.equal(x, given.t())
        found.append({"codes": codes, "scale": scale, "outer": outer, "whole": whole, "kept": kept})
    return found


# --- what they must bring back -------------------------------------------------------------------
def place(size: float, tie: str = "even") -> int:
    """The place of the magnitude that is nearest, by looking at all."""
    far = [abs(size - magnitude) for magnitude in MAGNITUDES]
    near = [i for i, distance in enumerate(far) if distance == min(far)]
    if tie == "up":
        return near[-1]
    return near[0] if tie == "down" or near[0] % 2 == 0 else near[-1]


def coded(x: torch.Tensor, how: str = "") -> Coded:
    """Codes and scales, number by number: slow and plain. `how` names what goes wrong."""
    x = x.float()
    outer = x.abs().max() / 6 / 448 if x.any() else torch.tensor(1.0)
    blocks = (x if how != "columns" else x.flatten().view(-1, 16).t().reshape(x.shape)).float()
    amax = blocks.unflatten(1, (-1, 16)).abs().amax(-1)
    exact = (amax / 6 / outer).clamp(2.0**-9, 448.0)
    if how == "power":
        exact = torch.exp2(exact.log2().floor())
    scale = exact.to(E4M3)
    used = exact if how == "unrounded" else scale.float()
    small = x / (used * outer).repeat_interleave(16, 1)
    tie = how if how in ("up", "down") else "even"
    code = torch.tensor([[place(abs(v), tie) + (8 if v < 0 else 0) for v in row]
                         for row in small.tolist()])  # fmt: skip
    low, high = code[:, ::2], code[:, 1::2]
    low, high = (high, low) if how == "swapped" else (low, high)
    return (low + 16 * high).to(torch.uint8), scale, outer


def decoded(codes: torch.Tensor, scale: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
    """The numbers that are meant; the code 8 is -0."""
    both = torch.stack([codes % 16, codes // 16], -1).flatten(1).long()
    numbers = torch.tensor([*MAGNITUDES, *(-m for m in MAGNITUDES)])[both]
    return numbers * (scale.float() * outer).repeat_interleave(16, 1)


def settled(x: torch.Tensor) -> torch.Tensor:
    """The same with blocks made smaller whose scale a last bit would round to another neighbour."""
    for _ in range(20):
        amax = x.double().unflatten(1, (-1, 16)).abs().amax(-1)
        exact = amax / amax.max() * 448
        low, high = ((exact * (1 + off)).float().to(E4M3).float() for off in (-1e-6, 1e-6))
        near = ((low != high) & (exact > 2.0**-10)).repeat_interleave(16, 1)
        if not near.any():
            break
        x = torch.where(near, (x * 0.96).to(x.dtype), x)
    return x


def clear(x: torch.Tensor) -> torch.Tensor:
    """Moves numbers that a last bit of float32 would round to another neighbour to zero."""
    x = settled(x)
    _, scale, outer = coded(x)
    small = (x.float() / (scale.float() * outer).repeat_interleave(16, 1)).abs().double()
    borders = (torch.tensor(MAGNITUDES[1:]) + torch.tensor(MAGNITUDES[:-1])).double() / 2
    near = ((small[..., None] / borders - 1).abs() < 1e-5).any(-1)
    return torch.where(near, torch.zeros_like(x), x)


def _cases(run: Run) -> dict[str, torch.Tensor]:
    """Matrices of hidden sizes, with blocks of very different magnitude, and with ties."""
    rows, blocks = run.number(3, 7), run.number(3, 6)
    across = 10.0 ** torch.linspace(-3, 2, 16 * blocks, dtype=torch.float64)
    x = (run.random((rows, 16 * blocks)) * across).float()
    ties = torch.zeros(rows, 16 * blocks)
    ties[:, ::16], ties[0, 0] = 6.0, 2688.0  # the outer scale is 1, a block's a power of two
    ties[:, 1:8] = torch.tensor([0.25, 0.75, -1.25, 1.75, -2.5, 3.5, -5.0])
    ties[0, 1:8] *= 448
    zeros = x.clone()
    zeros[1:, :16] = 0
    tiny = x.clone()
    tiny[0] *= 1e-9
    return {
        "a matrix": clear(x), "bf16": clear(x.bfloat16()),
        "bf16, all tiny": clear((1e-15 * x).bfloat16()),
        "numbers half-way between two": ties, "a block of zeros": clear(zeros),
        "blocks that are tiny compared with the largest": clear(tiny),
        "all zeros": torch.zeros(2, 32),
    }  # fmt: skip


def _found(run: Run) -> dict[str, dict[str, Any]]:
    cases = _cases(run)
    outputs = run(drive, {"cases": [x.t().contiguous() for x in cases.values()]}).outputs[0]
    found = {name: {"x": x, **got} for (name, x), got in zip(cases.items(), outputs, strict=True)}
    for name, got in found.items():
        run.true(got["kept"], f"x was changed ({name})", cause="others may need it: work on a copy")
        wanted = dict(zip(("codes", "scale", "outer"), coded(got["x"]), strict=True))
        for part, like in wanted.items():
            run.true(
                _form(got[part]) == _form(like),
                f"{part} has the wrong dtype or shape ({name})",
                expected=_form(like),
                measured=_form(got[part]),
                cause="codes: two in a byte; scales: one for each 16 numbers, one byte; outer: one",
            )
    return found


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return describe(value)
    return f"a tensor {str(value.dtype).removeprefix('torch.')}, {tuple(value.shape)}"


PLAIN = ("a matrix", "bf16", "bf16, all tiny", "blocks that are tiny compared with the largest")


@check("the outer scale", points=2, code="E")
@diagnosis("amax / (448·6): the largest block's scale is then 448")
def check_outer(run: Run) -> None:
    """E: float32, from the largest magnitude of all."""
    for name in PLAIN:
        got = _found(run)[name]
        outer = coded(got["x"])[2]
        likely = {
            "amax / 6: the blocks' scales share E4M3's range of 448": outer * 448,
            "amax / 448: the numbers reach 6": outer * 6,
            "inverted: number = code · scale · outer": 1 / outer,
        }
        run.close(got["outer"], outer, f"the outer scale ({name})", likely=likely)


@check("a scale for each block of 16", points=4, code="E")
@diagnosis("the block's largest magnitude / 6 / outer, rounded to E4M3")
def check_scales(run: Run) -> None:
    """E: bit for bit, tiny blocks too."""
    for name in PLAIN:
        got = _found(run)[name]
        scale, outer = coded(got["x"])[1:]
        run.close(
            got["scale"].float(),
            scale.float(),
            f"the scales ({name})",
            likely={
                "without the outer scale": (scale.float() * outer).clamp(2.0**-9, 448).to(E4M3),
                "a power of two, as in MX": coded(got["x"], "power")[1].float(),
                "one scale for all blocks": torch.full(scale.shape, 448.0),
                "the scale of a tiny block is 0: it must be at least 2^-9, or its numbers are "
                "divided by 0":
                    torch.where(scale.float() == 2.0**-9, 0.0, scale.float()),
            },
        )  # fmt: skip


@check("codes: the nearest of eight magnitudes, two in a byte", points=5, code="E")
@diagnosis(
    "the sign is bit 3, the magnitude's index is below it, and the first number is in the low half"
)
def check_codes(run: Run) -> None:
    """E: byte for byte, with the scales that must be returned."""
    for name in (*PLAIN, "numbers half-way between two"):
        got = _found(run)[name]
        x, codes = got["x"], coded(got["x"])[0]
        both = torch.stack([got["codes"] % 16, got["codes"] // 16], -1).flatten(1)
        right = torch.stack([codes % 16, codes // 16], -1).flatten(1)
        zero = (both % 8 == 0) & (right % 8 == 0)  # 0 and -0 are the same number
        if torch.equal(both[~zero], right[~zero]):
            continue
        guesses = {
            "the halves of the byte are swapped: the first number has the low one": "swapped",
            "divided by the scale before it was rounded to E4M3": "unrounded",
            "ties go up: if two are equally near, take the even index": "up",
            "ties go down: if two are equally near, take the even index": "down",
        }
        signless = codes & 0x77
        said = {why: coded(x, how)[0] for why, how in guesses.items()}
        said["the sign is lost"] = signless
        same = [why for why, other in said.items() if _alike(got["codes"], other)]
        at = int(((both != right) & ~zero).flatten().nonzero()[0])
        run.fail(
            f"{int(((both != right) & ~zero).sum())} of {both.numel()} codes are wrong ({name})",
            expected=f"number {at} ({x.float().flatten()[at]:.5g}) has the code "
            f"{right.flatten()[at]}",
            measured=f"{both.flatten()[at]}",
            cause=same[0] if same else "",
        )


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal, but for the sign of zeros."""
    pairs = [torch.stack([t % 16, t // 16], -1) for t in (first, second)]
    zero = (pairs[0] % 8 == 0) & (pairs[1] % 8 == 0)
    return torch.equal(pairs[0][~zero], pairs[1][~zero])


@check("dequantize: number = magnitude · scale · outer", points=3, code="E")
@diagnosis("unpack the byte, look up the magnitude, and repeat each scale 16 times")
def check_dequantize(run: Run) -> None:
    """E: from the learner's own codes and scales."""
    for name in (*PLAIN, "numbers half-way between two"):
        got = _found(run)[name]
        parts = (got["codes"], got["scale"], got["outer"])
        wanted = decoded(*parts)
        likely = {
            "the outer scale is forgotten": wanted / got["outer"],
            "the blocks' scales are forgotten": decoded(
                parts[0], torch.ones_like(parts[1].float()), parts[2]
            ),
            "the sign is lost": wanted.abs(),
            "the halves of the byte are swapped": wanted.unflatten(1, (-1, 2)).flip(-1).flatten(1),
        }
        run.close(got["whole"], wanted, f"what dequantize gives ({name})", terms=2, likely=likely)


@check("zeros stay zeros", points=2, code="E")
@diagnosis("0/0 is NaN: neither scale may be 0")
def check_zeros(run: Run) -> None:
    """E: a block of zeros, and nothing but zeros."""
    for name in ("a block of zeros", "all zeros"):
        got = _found(run)[name]
        whole = got["whole"]
        good = isinstance(whole, torch.Tensor) and whole.shape == got["x"].shape
        bad = int((whole[got["x"] == 0] != 0).sum()) if good else got["x"].numel()
        run.true(
            not bad,
            f"{bad} zeros become something else ({name})",
            expected="0",
            measured="NaN" if good and bool(whole.isnan().any()) else "another number",
            cause="a block of zeros was divided by 0",
        )
