"""blockwise_scaling: a scale for each block, cut-off blocks too, and MX bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis

EXERCISE = Exercise(
    title="One scale for each block",
    core=False,
    minutes=30,
    order=7,
    defines=("quantize", "quantize_mx", "dequantize"),
    library=(),
    hints=(
        "All three ways share two steps: from the numbers to one magnitude per block, and from "
        "one scale per block back to one per number. Write those first. If you pad with rows and "
        "columns of zeros, every block is complete, and a zero is never the largest magnitude.",
        "`block_amax`: `pad(x.float().abs(), (0, -C % columns, 0, -R % rows))`, then `unflatten` "
        "both dims into (blocks, size) and take `amax` over the two sizes. `spread`: "
        "`repeat_interleave` along both dims, and cut to the shape.",
        "MX: `torch.frexp(amax).exponent` is e + 1, as its mantissa is below 1. So the scale is "
        "`torch.ldexp(torch.ones_like(amax), torch.frexp(amax).exponent - 9)`, and 1 where amax "
        "is 0; divide by it in float32, and return it `.to(torch.float8_e8m0fnu)`.",
    ),
)

E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
RUN, SQUARE, MX = (1, 128), (128, 128), (1, 32)
Block = tuple[int, int]
Coded = tuple[torch.Tensor, torch.Tensor]  # data and scale


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, cases: list[tuple[torch.Tensor, Block]]
) -> list[dict[str, Any]]:
    """Quantizes transposes of matrices, and dequantizes what came of it."""
    found = []
    for given, block in cases:
        x = given.clone().t()
        pair = learner.quantize_mx(x) if block == MX else learner.quantize(x, block)
        good = isinstance(pair, (tuple, list)) and len(pair) == 2
        data, scale = pair if good else (pair, None)
        right = isinstance(data, torch.Tensor) and data.shape == x.shape
        whole = learner.dequantize(data, scale, block) if right else None
        kept = torch.equal(x, given.t())
        found.append({"data": data, "scale": scale, "whole": whole, "kept": kept})
    return found


# --- what they must bring back -------------------------------------------------------------------
def places(shape: torch.Size, block: Block) -> Iterator[tuple[int, int, slice, slice]]:
    """Each block's place, and which rows and columns it has."""
    for i in range(-(-shape[0] // block[0])):
        for j in range(-(-shape[1] // block[1])):
            rows = slice(i * block[0], (i + 1) * block[0])
            yield i, j, rows, slice(j * block[1], (j + 1) * block[1])


def power(amax: torch.Tensor, how: str = "") -> torch.Tensor:
    """MX's scale of one block; `how` names what goes wrong."""
    floor = next(e for e in range(127, -150, -1) if 2.0**e <= float(amax))
    scale = torch.tensor(2.0 ** (floor - 8))
    if how == "up":
        return scale * 2 if amax > 448 * scale else scale
    if how == "nearest":
        return (amax / 448).to(E8M0).float()
    return 2.0 ** (amax.log2().floor() - 8) if how == "log2" else scale


def coded(x: torch.Tensor, block: Block, how: str = "") -> Coded:
    """Data and scale, block by block: slow and plain. `how` names what goes wrong."""
    sizes = (-(-x.shape[0] // block[0]), -(-x.shape[1] // block[1]))
    scale, data = torch.ones(sizes), torch.zeros(x.shape)
    for i, j, rows, columns in places(x.shape, block):
        amax = (x if how == "one" else x[rows, columns]).float().abs().max()
        if amax:
            scale[i, j] = power(amax, how) if block == MX else amax / 448
        scale[i, j] = 1 / scale[i, j] if how == "inverted" else scale[i, j]
        divisor = amax / 448 if how == "finer" else scale[i, j]
        data[rows, columns] = x[rows, columns].float() / divisor
    return data.to(E4M3), scale.to(E8M0) if block == MX else scale


def decoded(data: torch.Tensor, scale: torch.Tensor, block: Block) -> torch.Tensor:
    """The numbers that are meant, block by block."""
    whole = data.float()
    for i, j, rows, columns in places(data.shape, block):
        whole[rows, columns] *= scale[i, j].float()
    return whole


def clear(x: torch.Tensor, block: Block) -> torch.Tensor:
    """Zeros in place of numbers that a last bit of float32 would round to another neighbour."""
    small = x.double() / decoded(torch.ones(x.shape), coded(x, block)[1], block).double()
    below, above = ((small * (1 + error)).to(E4M3).float() for error in (-1e-6, 1e-6))
    return torch.where(below == above, x, 0)


def _matrix(run: Run, rows: int, columns: int) -> torch.Tensor:
    """Hidden numbers of another magnitude in each row and column."""
    across = 10.0 ** torch.linspace(-4, 3, columns, dtype=torch.float64)
    down = 10.0 ** torch.linspace(2, -3, rows, dtype=torch.float64)
    return (run.random((rows, columns)) * across * down[:, None]).float()


def _cases(run: Run) -> dict[str, tuple[torch.Tensor, Block]]:
    """Matrices of hidden sizes that no block divides."""
    tall, wide, few = run.number(260, 300), run.number(140, 180), run.number(5, 9)
    x, w, small = _matrix(run, few, tall), _matrix(run, tall, wide), _matrix(run, few, 3 * few)
    mx, zeros = _matrix(run, few, tall), _matrix(run, few, wide)
    mx[:3, 64:96] /= mx[:3, 64:96].abs().amax(1, keepdim=True)  # next to a power of two and 448
    mx[:3, 64:96] *= torch.tensor([[32.0], [1.74 * 2**-3], [1.76 * 2**7]])
    mx[:2, 96:128] *= 1e-6
    for tiny in (x[1, :128], w[256:, 128:], mx[3, :32]):
        tiny *= 1e-20  # as gradients may be: a smallest scale would round them to 0
    mx[:2, 100] = torch.nextafter(torch.tensor([4096.0, -4096.0]), torch.zeros(2))
    zeros[1:3, :128] = 0
    cases = {
        "1×128": (x, RUN), "1×128, bf16": (x.bfloat16(), RUN), "1×128, zeros": (zeros, RUN),
        "128×128": (w, SQUARE), "128×128, small": (small, SQUARE),
        "128×1": (x.t().contiguous(), (128, 1)), "3×5": (small, (3, 5)),
        "MX": (mx, MX), "MX, bf16": (small.bfloat16(), MX), "MX, zeros": (zeros, MX),
    }  # fmt: skip
    return {name: (clear(x, block), block) for name, (x, block) in cases.items()}


def _found(run: Run) -> dict[str, dict[str, Any]]:
    """What was given and what came of it; some cases are there once more, with an outlier."""
    cases = _cases(run)
    for name in ("1×128", "128×128", "MX"):
        x, block = cases[name]
        spoiled = x.clone()
        spoiled[2, 130] = -1e9
        cases[f"{name}, an outlier"] = (spoiled, block)
    inputs = {"cases": [(x.t().contiguous(), block) for x, block in cases.values()]}
    outputs = run(drive, inputs).outputs[0]
    found = {
        name: {"x": cases[name][0], "block": cases[name][1], **got}
        for name, got in zip(cases, outputs, strict=True)
    }
    for name, got in found.items():
        run.true(got["kept"], f"x was changed ({name})", cause="others may need it: work on a copy")
        data, scale = coded(got["x"], got["block"])
        _formed(run, got["data"], data, f"the data ({name})", "8 bits for each number")
        _formed(
            run,
            got["scale"],
            scale,
            f"the scale ({name})",
            "one for each block, including the smaller ones at the edges",
        )
    return found


def _formed(run: Run, value: Any, like: torch.Tensor, what: str, cause: str) -> None:
    def form(tensor: torch.Tensor) -> str:
        return f"a tensor {str(tensor.dtype).removeprefix('torch.')}, {tuple(tensor.shape)}"

    there = form(value) if isinstance(value, torch.Tensor) else describe(value)
    run.true(
        there == form(like),
        f"{what} has the wrong dtype or shape",
        expected=form(like),
        measured=there,
        cause=cause,
    )


WRONG = {
    "the scale is inverted: number = data · scale": "inverted",
    "one scale for the whole matrix: each block needs its own": "one",
    "the exponent was rounded up: take the power of two that is not above": "up",
    "amax/448 was cast to E8M0: take the power of two that is not above amax, over 2^8": "nearest",
    "log2 rounds: just below a power of two it gives that power; frexp is exact": "log2",
    "divided by amax/448, not by the power of two that is returned": "finer",
}


def _compare(run: Run, names: list[str]) -> None:
    """Scale and data of some cases; each scale in proportion to the one it should be."""
    found = _found(run)
    for name in names:
        x, block, got = found[name]["x"], found[name]["block"], found[name]
        data, scale = coded(x, block)
        wrong = {why: coded(x, block, how) for why, how in WRONG.items()}
        run.close(
            got["scale"].float() / scale.float(),
            torch.ones(scale.shape),
            f"each scale, divided by what it should be ({name})",
            terms=2,
            likely={why: other[1].float() / scale.float() for why, other in wrong.items()},
        )
        likely = {
            "cast without a scale": x.float().to(E4M3).float(),
            **{why: other[0].float() for why, other in wrong.items()},
            "the scales are right, but the numbers were divided by different ones": got[
                "data"
            ].float(),
        }
        run.close(got["data"].float(), data.float(), f"the data ({name})", likely=likely)


@check("1×128: a scale for each 128 neighbours in a row", points=3, code="P")
@diagnosis("the largest magnitude of the 128, divided by 448")
def check_runs(run: Run) -> None:
    """P: scale and data; runs that are cut off, bf16, not contiguous."""
    _compare(run, ["1×128", "1×128, bf16"])


@check("128×128 and other blocks: a scale for each", points=3, code="P")
@diagnosis("the largest magnitude of each block, divided by 448")
def check_squares(run: Run) -> None:
    """P: scale and data; blocks that are cut off, one that is all there is, other sizes."""
    _compare(run, ["128×128", "128×128, small", "128×1", "3×5"])


@check("MX: a power of two for each 32 in a row", points=4, code="P")
@diagnosis("2^(e-8), with 2^e the largest power of two not above the block")
def check_mx(run: Run) -> None:
    """P: scale and data, with largest magnitudes at a power of two, just below it, and at 448."""
    _compare(run, ["MX", "MX, bf16"])


@check("dequantize: data times its block's scale", points=2, code="E")
@diagnosis("repeat each scale over the rows and columns of its block, and cut")
def check_dequantize(run: Run) -> None:
    """E: bit for bit, from the learner's own data and scales."""
    for name, got in _found(run).items():
        wanted = decoded(got["data"], got["scale"], got["block"])
        likely = {
            "divided by the scale: number = data · scale": decoded(
                got["data"], 1 / got["scale"].float(), got["block"]
            ),
            "the scale is forgotten": got["data"].float(),
        }
        run.close(got["whole"], wanted, f"what dequantize gives ({name})", terms=1, likely=likely)


@check("an outlier spoils only its own block", points=3, code="E")
@diagnosis("a number's scale depends on its own block alone")
def check_outlier(run: Run) -> None:
    """E: all numbers outside the outlier's block are what they were without it."""
    found = _found(run)
    for name in ("1×128", "128×128", "MX"):
        without, spoiled = found[name], found[f"{name}, an outlier"]
        rows, columns = without["block"]
        i, j = 2 // rows * rows, 130 // columns * columns
        changed = without["whole"] != spoiled["whole"]
        changed[i : i + rows, j : j + columns] = False
        there = changed.nonzero().tolist()
        run.true(
            not there,
            f"{len(there):,} numbers outside the outlier's block change ({name})",
            expected=f"only rows {i}-{i + rows - 1}, columns {j}-{j + columns - 1}",
            measured=f"also [{', '.join(map(str, (there or [[]])[0]))}]",
        )


@check("blocks of zeros", points=2, code="E")
@diagnosis("0/0 is NaN: such a block needs a scale that is not 0, for instance 1")
def check_zeros(run: Run) -> None:
    """E: nothing becomes NaN, and no scale is 0."""
    found = _found(run)
    for name in ("1×128, zeros", "MX, zeros"):
        bad, none = ~found[name]["whole"].isfinite(), found[name]["scale"].float() == 0
        for wrong, what, cause in (
            (bad, "numbers are NaN or infinite", "a block of zeros was divided by 0"),
            (none, "scales are 0", "who divides by such a scale gets NaN: take 1, for instance"),
        ):
            count = int(wrong.sum())
            words = f"{count} {what} ({name})"
            run.true(not count, words, expected="none", measured=str(count), cause=cause)
