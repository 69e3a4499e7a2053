"""fp8_all_gather: the same bits everywhere, one agreed scale, one byte a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis, in_part
from course_lib.trace import wire_bytes

EXERCISE = Exercise(
    title="A weight gathered in one byte per number",
    core=False,
    minutes=20,
    order=10,
    hints=(
        "What must every rank know before it may quantize its part? It is one number, and each "
        "rank knows a candidate for it.",
        "`amax = shard.detach().float().abs().amax()`, then `all_reduce(amax, group, 'max')`: "
        "now all have the same scale, amax / 448, or 1 where amax is 0. Every rank takes part, "
        "even if its part is all zeros: the others wait for it.",
        "`mine = (part / scale).to(torch.float8_e4m3fn).view(torch.uint8)`, gathered into "
        "`mine.new_empty(group.size * len(mine), *mine.shape[1:])`, and then `.view` as e4m3.",
    ),
)

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WORLDS = (1, 3, 4)
HALF, ZEROS = "a weight with a part of zeros", "a weight of zeros"
FULL = ["a matrix", "a flat weight in bf16", "matrices of experts"]  # without a part of zeros
Shards = dict[str, torch.Tensor]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, shards: Shards) -> dict[str, dict[str, Any]]:
    """Gathers each weight; first and last dim are exchanged, so most are not contiguous."""
    found = {}
    for name, shard in shards.items():
        given = shard.transpose(0, -1)
        parameter = nn.Parameter(given.clone())
        pair = learner.fp8_all_gather(parameter, group)
        good = isinstance(pair, (tuple, list)) and len(pair) == 2
        data, scale = pair if good else (pair, None)
        found[name] = {"data": data, "scale": scale, "kept": torch.equal(parameter, given),
                       "watched": getattr(scale, "requires_grad", False)}  # fmt: skip
    return found


# --- what they must bring back -------------------------------------------------------------------
def scale_of(x: torch.Tensor, dtype: torch.dtype = E4M3) -> torch.Tensor:
    """The scale by the rule."""
    amax = x.float().abs().max()
    return amax / torch.finfo(dtype).max if amax else torch.ones(())


def coded(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The 8-bit numbers, in float32 so that they can be compared and shown."""
    return (x.float() / scale).to(E4M3).float()


def clear(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Zeros in place of numbers that a last bit of float32 would round to another neighbour."""
    small = torch.stack(parts).double() / scale_of(torch.stack(parts)).double()
    below, above = ((small * (1 + error)).to(E4M3).float() for error in (-1e-6, 1e-6))
    return [torch.where(same, part, 0) for part, same in zip(parts, below == above, strict=True)]


def _weights(run: Run, world: int) -> dict[str, list[torch.Tensor]]:
    """By name, each rank's part before its transpose: hidden sizes, other magnitudes by rank."""
    rows, columns, flat = run.number(3, 8), run.number(5, 12), run.number(20, 40)
    louder = [3.7 ** ((rank + 1) % world) for rank in range(world)]

    def parts(shape: tuple[int, ...], size: float, dtype: torch.dtype) -> list[torch.Tensor]:
        drawn = [(run.random(shape) * size * by).to(dtype) for by in louder]
        return clear([t - 2 * t.max() * (t == t.max()) for t in drawn])  # a negative amax

    half = parts((flat,), 1.0, torch.float32)
    half[-1] = half[-1] * 0
    return {
        FULL[0]: parts((columns, rows), 0.02, torch.float32),
        FULL[1]: parts((flat,), 5e4, torch.bfloat16),
        FULL[2]: parts((columns, 3, rows), 0.02, torch.float32),
        HALF: clear(half),
        ZEROS: [torch.zeros(flat)] * world,
    }


def _found(run: Run, world: int) -> tuple[dict[str, list[torch.Tensor]], Any]:
    """The parts of each weight as the learner saw them, and the run."""
    weights = _weights(run, world)
    inputs = [
        {"shards": {name: parts[rank] for name, parts in weights.items()}} for rank in range(world)
    ]
    seen = {name: [part.transpose(0, -1) for part in parts] for name, parts in weights.items()}
    return seen, run(drive, inputs, world=world)


def _each(run: Run, names: list[str]) -> Iterator[tuple[str, list[torch.Tensor], int, Any]]:
    """What was found of some weights on each rank, if it has the right form."""
    for world in WORLDS:
        seen, result = _found(run, world)
        for name in names:
            for rank, found in enumerate(run.each(result.outputs)):
                what, got = f"{name}, {world} ranks", found[name]
                shape = torch.cat(seen[name]).shape
                _formed(run, got["data"], E4M3, shape, f"the data ({what})", rank)
                _formed(run, got["scale"], torch.float32, torch.Size(), f"the scale ({what})", rank)
                yield what, seen[name], rank, got


def _formed(
    run: Run, value: Any, dtype: torch.dtype, shape: torch.Size, what: str, rank: int
) -> None:
    def form(tensor: torch.Tensor) -> str:
        return f"a tensor {str(tensor.dtype).removeprefix('torch.')}, {tuple(tensor.shape)}"

    wanted = form(torch.empty(shape, dtype=dtype))
    there = form(value) if isinstance(value, torch.Tensor) else describe(value)
    run.true(
        there == wanted,
        f"{what} has the wrong dtype or shape",
        rank=rank,
        expected=wanted,
        measured=there,
    )


def _compare(run: Run, names: list[str]) -> None:
    """Scale and data of some weights, on all ranks of all worlds."""
    for what, parts, rank, got in _each(run, names):
        own = [scale_of(part) for part in parts]
        whole = torch.cat(parts)
        scale, whole_bits = scale_of(whole), coded(whole, scale_of(whole))
        likely = {
            "this rank's own scale: the largest of all ranks is needed": own[rank],
            "the scale is inverted: largest magnitude / 448": 1 / scale,
            "the largest number was taken, not the largest magnitude": whole.max().float() / 448,
            "magnitudes were summed: agree on the largest": torch.stack(own).sum(),
            "magnitudes were averaged: agree on the largest": torch.stack(own).mean(),
            "57344 is the largest number of e5m2: e4m3's is 448": scale_of(whole, E5M2),
        }
        run.close(got["scale"], scale, f"the scale ({what})", terms=2, likely=likely)
        data = got["data"].float()
        run.close(data, whole_bits, f"the data ({what})", likely={
            "each part was divided by its own scale: divide all by the one that is returned":
                torch.cat([coded(part, by) for part, by in zip(parts, own, strict=True)]),
            "multiplied by the scale: number = data · scale": coded(whole, 1 / scale),
            "cast without a scale": coded(whole, torch.ones(())),
            "the parts are in the wrong order": torch.cat(
                [coded(part, scale) for part in parts[::-1]]),
        })  # fmt: skip
        run.true(got["kept"], f"the shard was changed ({what})")
        cause = "no gradient flows through: begin with `shard.detach()`"
        run.true(not got["watched"], f"the scale requires a gradient ({what})", cause=cause)


@check("the 8-bit whole and its scale, on 1, 3 and 4 ranks", points=5, code="E")
@diagnosis("the scale is the largest magnitude on any rank divided by 448; all ranks use it")
def check_whole(run: Run) -> None:
    """E: bit for bit; one dim in bf16, two, three; parameters that are not contiguous."""
    _compare(run, FULL)


@check("the same bits on every rank", points=2, code="E")
@diagnosis("agree on one scale before anything is quantized")
@in_part
def check_same(run: Run) -> None:
    """E: data and scale are rank 0's on all ranks, whatever they are."""
    first: dict[str, Any] = {}
    for what, _, rank, got in _each(run, FULL):
        first = got if rank == 0 else first
        name = f"the scale ({what}), compared with rank 0's,"
        run.equal(got["scale"], first["scale"], name)
        name = f"the bytes of the data ({what}), compared with rank 0's,"
        run.equal(got["data"].view(torch.uint8), first["data"].view(torch.uint8), name)


@check("parts of zeros, and nothing but zeros", points=3, code="E")
@diagnosis("0/0 is NaN: the scale of a weight of zeros is 1")
def check_zeros(run: Run) -> None:
    """E: one rank's part is zeros; then all are. Every rank takes part in both collectives."""
    names = [HALF, ZEROS]
    for what, _, _, got in _each(run, names):
        bad = sum(
            int(got[part].float().isfinite().logical_not().sum())
            for part in got
            if part in ("data", "scale")
        )
        run.true(
            not bad,
            f"{bad} numbers are NaN or infinite ({what})",
            expected="none",
            measured=str(bad),
            cause="zeros were divided by 0",
        )
    _compare(run, names)


@check("one byte per number, and 4 bytes to agree", points=4, code="B")
@diagnosis("quantize before the all-gather; all-reduce one float32")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger, by operation; calls too."""
    for world in WORLDS[1:]:
        seen, result = _found(run, world)
        count = sum(parts[0].numel() for parts in seen.values()) * (world - 1)
        agree = [wire_bytes("all_reduce", 4, world, rank, 4)[0] for rank in range(world)]
        agree = [sent * len(seen) for sent in agree]
        whole = sum(parts[0].nbytes for parts in seen.values()) * (world - 1)
        likely: dict[str, Any] = {
            "float32 is gathered, four bytes per number: quantize first": 4 * count,
            "16 bits are gathered, two bytes per number: quantize first": 2 * count,
            "the weights are gathered as they are: quantize first": whole,
            "scales are gathered too: agree on one by an all-reduce": count
            + 4 * len(seen) * (world - 1),
        }
        run.bytes(result, count, op="all_gather", what="bytes sent by all-gathers", likely=likely)
        likely = {
            "the ranks do not agree: each has its own scale": 0,
            "8 bytes: one float32 is enough": [2 * sent for sent in agree],
        }
        run.bytes(result, agree, op="all_reduce", what="bytes sent by all-reduces", likely=likely)
        total = [count + sent for sent in agree]
        run.bytes(result, total, what="bytes sent in all")
