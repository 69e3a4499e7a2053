"""ring_reduce_scatter: rank i owns chunk i, (N-1)/N·S bytes, neighbours only."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes

EXERCISE = Exercise(
    title="Ring reduce-scatter from messages",
    core=True,
    minutes=25,
    order=2,
    library=(
        "comm.Group",
        "comm.Work",
        "comm.send",
        "comm.recv",
        "comm.isend",
        "comm.irecv",
        "comm.exchange",
    ),
    hints=(
        "Follow one chunk backwards. It must be complete on its owner, rank c, after N-1 steps, "
        "and it moves to the next rank in each step. On which rank does it start? Then ask the "
        "other way round: which chunk does rank r send in the first step?",
        "Chunk c starts on rank c+1, so rank r begins by sending chunk r-1. In step s it sends "
        "chunk r-1-s, and receives chunk r-2-s, to which it adds its own (all modulo N). What it "
        "sends in a step is what it got in the step before.",
        "Keep `passing = chunks[group.previous]`. In each step: a buffer like "
        "`chunks[(group.index - step - 2) % group.size]`, `exchange(passing, group.next, buffer, "
        "group.previous, group)`, then `passing` is the buffer plus that chunk. At the end, "
        "`passing` is the answer; divide it for `avg`.",
    ),
)

WORLDS = (1, 2, 3, 4)
DIVISIBLE, UNEVEN = 48, 49  # elements; 48 divides by 1, 2, 3 and 4


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, tensors: list[torch.Tensor], ops: list[str]) -> dict[str, Any]:
    """Reduces each tensor with each operation."""
    given = [(tensor.clone(), op) for op in ops for tensor in tensors]
    return {"chunks": [learner.ring_reduce_scatter(tensor, group, op) for tensor, op in given]}


def drive_transposed(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """Reduces a view that is not contiguous."""
    return {"chunk": learner.ring_reduce_scatter(tensor.t()[1:], group)}


# --- what they must bring back -------------------------------------------------------------------
def reduced(rows: list[torch.Tensor], op: str) -> torch.Tensor:
    """One process's answer: the reduction of the same tensor of all ranks."""
    stack = torch.stack(rows)
    if op == "max":
        return stack.amax(0)
    total = stack.sum(0)
    return total / len(rows) if op == "avg" else total


def cut(tensor: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """The chunks of a tensor."""
    return list(tensor.reshape(-1).tensor_split(parts))


def likely(rows: list[torch.Tensor], rank: int, op: str) -> dict[str, torch.Tensor]:
    """Known wrong answers for the chunk of one rank."""
    world = len(rows)
    mine = [cut(row, world)[rank] for row in rows]
    total = reduced(mine, "sum")
    known = {}
    for other, chunk in enumerate(cut(reduced(rows, op), world)):
        if other != rank:
            owner = f"this is chunk {other}, complete; rank {rank} owns chunk {rank}"
            known[f"{owner}: begin with another chunk"] = chunk
    own = (
        "this is the rank's own chunk: nothing was added to it, or it was added before its "
        "message had arrived, or to another chunk"
    )
    known[own] = mine[rank]
    if op == "sum":
        for other, row in enumerate(mine):
            known[f"rank {other}'s summand is missing"] = total - row
            known[f"rank {other}'s summand is in it twice"] = total + row
        known["this is the mean: `sum` must not divide"] = total / world
        return known
    known[f"this is the sum, but the operation is `{op}`"] = total
    hop = mine[(rank + 1) % world]
    for step in range(2, world + 1):
        hop = (hop + mine[(rank + step) % world]) / 2
    known["averaged at every hop, so later ranks weigh more: divide once, at the end"] = hop
    return known


def _compare(run: Run, world: int, tensors: list[list[torch.Tensor]], ops: list[str]) -> Any:
    """Runs all tensors and operations on `world` ranks and compares each chunk."""
    inputs = [{"tensors": tensors[rank], "ops": ops} for rank in range(world)]
    result = run(drive, inputs, world=world)
    cases = [(op, index) for op in ops for index in range(len(tensors[0]))]
    for rank, found in enumerate(run.each(result.outputs)):
        for place, (op, index) in enumerate(cases):
            rows = [tensors[other][index] for other in range(world)]
            size = "×".join(map(str, rows[0].shape)) or "scalar"
            what = f"the chunk returned ({size} cut in {world}, op={op!r})"
            run.close(
                found["chunks"][place],
                cut(reduced(rows, op), world)[rank],
                what,
                likely=likely(rows, rank, op),
                terms=world,
            )
    return result


def _one(run: Run, world: int) -> Any:
    """One reduce-scatter of one tensor, for looking at its messages."""
    inputs = [{"tensors": [run.random(UNEVEN)], "ops": ["sum"]} for _ in range(world)]
    return run(drive, inputs, world=world)


@check("rank i gets the sum of chunk i: 1–4 ranks, sizes that do not divide", points=3, code="E")
@diagnosis("a chunk is sent or added in the wrong step; follow one chunk round the ring")
def check_sum(run: Run) -> None:
    """E: float64, hidden sizes; chunks of equal size first, so that a mix-up can be named."""
    for world in WORLDS:
        size = run.number(25, 60) * 12 + 7  # a remainder for 2, 3 and 4 ranks
        shapes: list[tuple[int, ...]] = [(DIVISIBLE,), (size,), (3, 5), (2,), (), (0,)]
        _compare(run, world, [[run.random(s) for s in shapes] for _ in range(world)], ["sum"])


@check("avg and max on 3 ranks", points=2, code="E")
@in_part
def check_ops(run: Run) -> None:
    """E: the other operations."""
    _compare(run, 3, [[run.random(DIVISIBLE), run.random(20)] for _ in range(3)], ["avg", "max"])


@check("the dtype is kept; the tensor may be a view", points=1, code="E")
@diagnosis("make buffers like the chunk that they hold; `view` fails on a non-contiguous tensor")
def check_dtypes(run: Run) -> None:
    """E: other dtypes, and a tensor that is not contiguous."""
    world = 3
    tensors = [[run.random(23, torch.float32), run.integers(-99, 99, 23)] for _ in range(world)]
    _compare(run, world, tensors, ["sum"])
    wide = [run.random((5, 7)) for _ in range(world)]
    result = run(drive_transposed, [{"tensor": tensor} for tensor in wide], world=world)
    rows = [tensor.t()[1:] for tensor in wide]
    for rank, found in enumerate(run.each(result.outputs)):
        memory = cut(reduced([tensor[:, 1:] for tensor in wide], "sum"), world)[rank]
        run.close(
            found["chunk"],
            cut(reduced(rows, "sum"), world)[rank],
            "the chunk of a transposed view",
            terms=world,
            likely={"it was cut in the order of memory, not of the elements": memory},
        )


@check("(N-1)/N·S bytes sent by each rank", points=2, code="B")
@diagnosis("each step sends one chunk of S/N bytes, and there are N-1 steps")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger; sizes that do not divide."""
    world, size = 4, UNEVEN * 8
    result = _one(run, world)
    right = [wire_bytes("reduce_scatter", size, world, rank, 8)[0] for rank in range(world)]
    whole = [wire_bytes("all_reduce", size, world, rank, 8)[0] for rank in range(world)]
    known: dict[str, Any] = {
        "this is a whole all-reduce: the second half is not needed here": whole,
        "everything goes through rank 0: a hot spot, the worse the more ranks there are": [right[0]]
        + [size] * (world - 1),
        "rank 0 adds everything and sends it all back: a hot spot": [(world - 1) * size]
        + [size] * (world - 1),
        "one message too many: a rank never sends the chunk that it owns": size,
        "the whole tensor goes round the ring: send one chunk of it per step": (world - 1) * size,
        "half as many: it was sent as float32": [sent // 2 for sent in right],
    }
    run.bytes(result, right, likely=known)


@check("N-1 steps round the ring, all ranks at once", points=2, code="S")
@diagnosis("in every step each rank sends one chunk to the next and receives another")
def check_ring(run: Run) -> None:
    """S: one message a step, to one neighbour; nobody waits for the whole ring."""
    run.ring(_one(run, 4), "chunks travel from neighbour to neighbour and are added on the way")


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch, of comm, or of comm's own rings."""
    run.messages_alone(_one(run, 4))


@check("large messages end", points=1, code="H")
def check_large(run: Run) -> None:
    """H: chunks of 256 KiB, so that a send cannot hide in a buffer."""
    world = 4
    _compare(run, world, [[run.random(world << 15)] for _ in range(world)], ["sum"])
