"""zigzag_split: chunks i and 2n-1-i, their positions, the way back, and even work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.attention import causal

EXERCISE = Exercise(
    title="A fair cut of a causal sequence",
    core=True,
    minutes=20,
    order=4,
    defines=("zigzag_split", "zigzag_join"),
    library=(),
    hints=(
        "`x.tensor_split(2 * n, dim)` gives the 2n chunks. Do the same with the tensor of all "
        "positions, `torch.arange(T)`, as with x, and you have `positions`.",
        "`torch.cat([chunks[index], chunks[2 * n - 1 - index]], dim)` is the shard. For the way "
        "back, cut each shard into its two chunks: if the length is odd, `shard.tensor_split(2, "
        "dim)` makes the first one longer, as it must be.",
        "With the shards cut into `early` and `late` chunks, the whole is all early ones in "
        "order, then all late ones from the last rank to the first: `torch.cat([*early, "
        "*reversed(late)], dim)`.",
    ),
)

NAMES = ("shard", "positions")
RANKS = 2  # real ones; each answers for every second index
TILE = 24  # positions in a chunk where the work is counted
Case = dict[str, Any]  # x, dim, n


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Case]) -> dict[str, Any]:
    """All shards of each case, and what is joined from the right ones."""
    found = []
    for case in cases:
        x, dim, n = case["x"].clone(memory_format=torch.preserve_format), case["dim"], case["n"]
        x = x.mT.contiguous().mT if x.dim() > 1 else x
        shards = [causal.named(learner.zigzag_split(x, dim, n, index), NAMES) for index in range(n)]
        given = [shard.clone() for shard in case["shards"]]
        joined = learner.zigzag_join(given, dim)
        same = torch.equal(x, case["x"]) and len(given) == n
        same = same and all(map(torch.equal, given, case["shards"]))
        found.append({"shards": shards, "joined": joined, "same": same})
    return {"cases": found}


def drive_gradient(learner: Any, group: Any, x: torch.Tensor, slopes: torch.Tensor) -> Any:
    """The gradient of a sequence that was cut and joined."""
    x.requires_grad_()
    shards = [learner.zigzag_split(x, 1, 3, index)[0] for index in range(3)]
    joined = learner.zigzag_join([shard * 2 for shard in shards], 1)
    if not joined.requires_grad:
        return {"gradient": None}
    (joined * slopes).sum().backward()
    return {"gradient": x.grad}


# --- what they must bring back -------------------------------------------------------------------
def places(length: int, n: int, index: int) -> torch.Tensor:
    """The positions of one rank's shard."""
    chunks = torch.arange(length).tensor_split(2 * n)
    return torch.cat([chunks[index], chunks[2 * n - 1 - index]])


def likely_places(length: int, n: int, index: int) -> dict[str, torch.Tensor]:
    """Known wrong choices of positions, under what explains them."""
    every = torch.arange(length)
    chunks, other = every.tensor_split(2 * n), 2 * n - 1 - index
    even = every[: length // (2 * n) * 2 * n].chunk(2 * n)
    ceiled = [*every.split(max(1, -(-length // (2 * n)))), *[every[:0]] * 2 * n]
    return {
        "contiguous parts: the last rank has most of the work": every.tensor_split(n)[index],
        "every n-th position: striped, not zigzag": every[index::n],
        "chunks i and n+i: the last rank still has the most expensive ones; the second must be "
        "2n-1-i":
            torch.cat([chunks[index], chunks[(n + index) % (2 * n)]]),
        "chunks 2i and 2i+1, which are one contiguous part":
            torch.cat([chunks[2 * index], chunks[2 * index + 1]]),
        "the late chunk comes first: chunk i, then chunk 2n-1-i":
            torch.cat([chunks[other], chunks[index]]),
        "the late chunk is reversed: its positions must increase as well":
            torch.cat([chunks[index], chunks[other].flip(0)]),
        "the remainder is lost: 2n need not divide the length":
            torch.cat([even[index], even[other]]) if even and len(even) == 2 * n else every[:0],
        "all chunks as long as the first, the last one shorter (torch.chunk): tensor_split makes "
        "the first T % 2n one longer": torch.cat([ceiled[index], ceiled[other]]),
        "chunks are dealt out to 2n ranks: only one chunk for each": chunks[index],
    }  # fmt: skip


def in_place(case: Case, order: torch.Tensor) -> torch.Tensor:
    """The given places of the case's sequence."""
    return case["x"].index_select(case["dim"], order)


def _case(x: torch.Tensor, dim: int, n: int) -> Case:
    case = {"x": x, "dim": dim, "n": n}
    shards = [in_place(case, places(x.shape[dim], n, index)) for index in range(n)]
    return {**case, "shards": shards}


def _title(case: Case, index: int | None = None) -> str:
    shape = "×".join(map(str, case["x"].shape))
    who = "" if index is None else f"index {index}, "
    return f"({who}n = {case['n']}; x is {shape}, dim {case['dim']})"


# --- cases ---------------------------------------------------------------------------------------
def _even(run: Run) -> list[Case]:
    """Lengths that divide by 2n."""
    return [_case(run.random((2, 2 * n * run.number(2, 5), 3)), 1, n) for n in (1, 2, 3, 4)]


def _uneven(run: Run) -> list[Case]:
    """Lengths that do not, also fewer positions than chunks, and than ranks."""
    more = run.number(1, 3)
    sizes = [(2, 12 + more), (3, 12 + more), (3, 17), (4, 24 + more), (4, 31), (4, 5), (1, 1),
             (4, 3)]  # fmt: skip
    return [_case(run.random((2, length)), 1, n) for n, length in sizes]


def _forms(run: Run) -> list[Case]:
    """Other dims, dtypes and memory orders."""
    return [_case(run.random((13, 2)), 0, 2), _case(run.random((2, 3, 12, 4)), -2, 3),
            _case(run.integers(0, 256, (3, 11)), -1, 2), _case(run.integers(0, 2, 10).bool(), 0, 2),
            _case(run.random((2, 9, 2), torch.float32), 1, 2),
            _case(run.random((1, 8, 5), torch.bfloat16), 1, 4)]  # fmt: skip


def _found(run: Run, cases: list[Case]) -> list[dict[str, Any]]:
    """What the ranks found for each case; each index is asked on one of them."""
    ranks = [output["cases"] for output in run(drive, {"cases": cases}, world=RANKS).outputs]
    return [
        {
            "shards": [found[index % RANKS]["shards"][index] for index in range(case["n"])],
            "joined": [each["joined"] for each in found],
            "same": all(each["same"] for each in found),
        }
        for case, found in zip(cases, zip(*ranks, strict=True), strict=True)
    ]


def _close(
    run: Run, value: Any, right: torch.Tensor, what: str, likely: dict[str, torch.Tensor]
) -> None:
    """`run.close`, which also knows what a wrong shape comes from."""
    if isinstance(value, torch.Tensor) and value.shape != right.shape:
        shapes = {why: list(wrong.shape) for why, wrong in likely.items()}
        run.equal(list(value.shape), list(right.shape), f"the shape of {what}", likely=shapes)
    run.close(value, right, what, likely=likely)


def _check_shards(run: Run, case: Case, found: dict[str, Any]) -> None:
    """Each shard's values."""
    length, n = case["x"].shape[case["dim"]], case["n"]
    for index in reversed(range(n)):  # the last rank tells more slips apart
        shard = causal.results(run, found["shards"][index], NAMES, 0)["shard"]
        known = likely_places(length, n, index)
        _close(
            run,
            shard,
            case["shards"][index],
            f"the shard {_title(case, index)}",
            {why: in_place(case, wrong) for why, wrong in known.items()},
        )


def _check_places(run: Run, case: Case, found: dict[str, Any]) -> None:
    """Each shard's positions."""
    length, n = case["x"].shape[case["dim"]], case["n"]
    for index in reversed(range(n)):
        answer = causal.results(run, found["shards"][index], NAMES, 0)
        right = places(length, n, index)
        start = sum(len(places(length, n, before)) for before in range(index))
        local = torch.arange(len(right))
        _close(run, answer["positions"], right, f"positions {_title(case, index)}", {
            "counted in the shard: mask and rotary embedding need places in the whole sequence":
                local,
            "counted through the shards, as if each were contiguous in the sequence": local + start,
            **likely_places(length, n, index),
        })  # fmt: skip


def _check_joined(run: Run, case: Case, found: dict[str, Any]) -> None:
    """What is joined from the right shards."""
    x, dim, shards = case["x"], case["dim"], case["shards"]
    halves = [shard.tensor_split(2, dim) for shard in shards]
    early, late = [half[0] for half in halves], [half[1] for half in halves]
    floors = [shard.shape[dim] // 2 for shard in shards]
    short = [shard.tensor_split([floor], dim) for shard, floor in zip(shards, floors, strict=True)]
    low, high = zip(*short, strict=True)
    known = {
        "the shards are concatenated: their chunks must return to their places":
            torch.cat(shards, dim),
        "the late chunks are in the order of the ranks: they must be in the opposite order":
            torch.cat([*early, *late], dim),
        "the early chunk is too short: if the length is odd, it is the longer one":
            torch.cat([*low, *reversed(high)], dim),
    }  # fmt: skip
    for joined in found["joined"]:
        _close(run, joined, x, f"what is joined {_title(case)}", known)


# --- checks --------------------------------------------------------------------------------------
@check("rank i has chunks i and 2n-1-i", points=3, code="E")
@diagnosis("cut x into 2n chunks, and concatenate two of them, the early one first")
def check_shards(run: Run) -> None:
    """E: 1–4 ranks, lengths that divide."""
    cases = _even(run)
    for case, found in zip(cases, _found(run, cases), strict=True):
        _check_shards(run, case, found)


@check("positions are places in the whole sequence", points=3, code="E")
@diagnosis("cut torch.arange(T) as x is cut")
def check_positions(run: Run) -> None:
    """E: the same cases."""
    cases = _even(run)
    for case, found in zip(cases, _found(run, cases), strict=True):
        _check_places(run, case, found)


@check("zigzag_join restores the sequence from the shards", points=3, code="E")
@diagnosis("early chunks in order, then late chunks from the last rank to the first")
def check_joined(run: Run) -> None:
    """E: from right shards, whatever zigzag_split does."""
    cases = _even(run)
    for case, found in zip(cases, _found(run, cases), strict=True):
        _check_joined(run, case, found)


@check("lengths that 2n does not divide", points=3, code="E")
@diagnosis("take the chunks of torch.tensor_split, in both functions")
def check_uneven(run: Run) -> None:
    """E: every function, also with fewer positions than chunks, and a shard without any."""
    cases = _uneven(run)
    for case, found in zip(cases, _found(run, cases), strict=True):
        _check_shards(run, case, found)
        _check_places(run, case, found)
        _check_joined(run, case, found)


@check("any dim, dtype and memory order; x is not changed", points=1, code="E")
def check_forms(run: Run) -> None:
    """E: tokens, heads before the sequence, bfloat16."""
    cases = _forms(run)
    for case, found in zip(cases, _found(run, cases), strict=True):
        _check_shards(run, case, found)
        _check_places(run, case, found)
        _check_joined(run, case, found)
        run.true(found["same"], f"x was changed {_title(case)}")


@check("gradients flow through both functions", points=1, code="E")
@diagnosis("detach nothing, and make no new tensor from values")
def check_gradient(run: Run) -> None:
    """E: a sequence that was cut, doubled and joined."""
    x, slopes = run.random((2, 14, 2)), run.random((2, 14, 2))
    found = run(drive_gradient, {"x": x, "slopes": slopes}).outputs[0]
    run.close(found["gradient"], 2 * slopes, "the gradient of x")


@check("even work: at most one tile of difference between two ranks", points=3, code="S")
@diagnosis("a query at position p sees p+1 keys: an early chunk and the opposite late one")
def check_work(run: Run) -> None:
    """S: visible pairs of query and key, counted from the positions; in all, and in each hop."""
    sizes = [(2, 0), (3, run.number(1, 6)), (4, 0), (8, run.number(1, 16))]
    cases = [_case(run.random((1, 2 * n * TILE + more)), 1, n) for n, more in sizes]
    for case, found in zip(cases, _found(run, cases), strict=True):
        n, length = case["n"], case["x"].shape[1]
        shards = [causal.results(run, shard, NAMES, 0)["positions"] for shard in found["shards"]]
        what = "the list of all ranks' positions, sorted"
        run.equal(torch.cat(shards).sort()[0].tolist(), list(range(length)), what)
        row = torch.arange(length).tensor_split(n)
        _even_work(run, f"n = {n}, {length} positions", work(shards), work(row))


def work(shards: Sequence[torch.Tensor]) -> list[list[int]]:
    """Visible pairs for each rank, in each hop of a ring: its queries, the keys of the block."""
    n = len(shards)
    return [
        [int(causal.visible(shards[rank], shards[rank - hop]).sum()) for rank in range(n)]
        for hop in range(n)
    ]


def _even_work(run: Run, what: str, hops: list[list[int]], row: list[list[int]]) -> None:
    """Each hop, and all of them together, against the work of shards cut in a row."""
    tile = (TILE + 1) ** 2
    for name, pairs, other in [
        (
            "in all",
            [sum(each) for each in zip(*hops, strict=True)],
            [sum(each) for each in zip(*row, strict=True)],
        ),
        *[(f"in hop {h} of a ring", hops[h], row[h]) for h in range(len(hops))],
    ]:
        run.true(
            max(pairs) - min(pairs) <= tile,
            f"uneven work {name} ({what})",
            expected=f"at most {tile} pairs (one tile) between two ranks",
            measured=f"visible pairs {pairs}; with contiguous parts they would be {other}",
        )
