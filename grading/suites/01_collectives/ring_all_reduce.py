"""ring_all_reduce: right on 1–4 ranks, 2(N-1)/N·S bytes, built from messages alone."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from grading.references.communication import in_place

EXERCISE = Exercise(
    title="Ring all-reduce from messages",
    core=True,
    minutes=25,
    order=4,
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
        "Write the reduce-scatter first. In step s, rank r sends chunk r-s and receives chunk "
        "r-s-1 (both modulo N), and adds what it received. Which chunk is complete on rank r "
        "after N-1 steps?",
        "After the reduce-scatter, rank r has chunk r+1. The all-gather is the same walk without "
        "adding: in step s, rank r sends chunk r+1-s and receives chunk r-s into its place. "
        "`exchange` sends and receives at once, so no step can deadlock.",
        "`tensor.view(-1).tensor_split(group.size)` gives chunks that are views, so writing into "
        "them changes the tensor. Divide once, at the very end, for `avg`. Work on a contiguous "
        "copy if the tensor is not contiguous, and copy back.",
    ),
)

WORLDS = (1, 2, 3, 4)
DIVISIBLE = 48  # elements; divides by 1, 2, 3 and 4


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, tensors: list[torch.Tensor], ops: list[str]) -> dict[str, Any]:
    """Reduces each tensor with each operation."""

    def reduce_with(op: str) -> in_place.Call:
        return lambda tensor: learner.ring_all_reduce(tensor, group, op)

    return in_place.called(list(map(reduce_with, ops)), tensors)


def drive_transposed(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """Averages a view that is not contiguous."""
    return in_place.called_on_a_view(lambda x: learner.ring_all_reduce(x, group, "avg"), tensor)


# --- what they must bring back -------------------------------------------------------------------
def reduced(rows: list[torch.Tensor], op: str) -> torch.Tensor:
    """One process's answer: the reduction of the same tensor of all ranks."""
    stack = torch.stack(rows)
    if op == "max":
        return stack.amax(0)
    total = stack.sum(0)
    return total / len(rows) if op == "avg" else total


def likely(rows: list[torch.Tensor], rank: int, op: str) -> dict[str, torch.Tensor]:
    """Known wrong answers for one tensor on one rank."""
    total = reduced(rows, "sum")
    known = {"the tensor was not changed: work on it in place, not on a copy": rows[rank]}
    if op == "max":
        known["this is the sum: `max` must compare instead of adding"] = total
    if op == "sum":
        known["this is the mean: `sum` must not divide"] = total / len(rows)
    if op == "avg":
        known["this is the sum: for `avg` divide by the group's size at the end"] = total
        known["averaged at every hop, so later ranks weigh more: divide once, at the end"] = halved(
            rows
        )
    return known


def halved(rows: list[torch.Tensor]) -> torch.Tensor:
    """What comes out if each hop averages: chunk c starts at rank c and meets all in turn."""
    size = len(rows)
    chunks = [row.reshape(-1).tensor_split(size) for row in rows]
    walked = []
    for number in range(size):
        value = chunks[number][number]
        for hop in range(1, size):
            value = (value + chunks[(number + hop) % size][number]) / 2
        walked.append(value)
    return torch.cat(walked).reshape(rows[0].shape)


def _compare(run: Run, world: int, tensors: list[list[torch.Tensor]], ops: list[str]) -> Any:
    """Runs all tensors and operations on `world` ranks and compares each value on each rank."""
    inputs = [{"tensors": tensors[rank], "ops": ops} for rank in range(world)]
    result = run(drive, inputs, world=world)
    cases = [(op, index) for op in ops for index in range(len(tensors[0]))]
    for rank, found in enumerate(run.each(result.outputs)):
        for place, (op, index) in enumerate(cases):
            rows = [tensors[other][index] for other in range(world)]
            what = f"the tensor ({in_place.shape_of(rows[0])}, op={op!r}, {world} ranks)"
            known = likely(rows, rank, op)
            run.close(found["values"][place], reduced(rows, op), what, likely=known, terms=world)
    return result


def _tensors(run: Run, world: int) -> list[list[torch.Tensor]]:
    """Per rank: sizes that no world divides, one smaller than the world, an empty and a scalar."""
    size = run.number(25, 60) * 12 + 7  # a remainder for 2, 3 and 4 ranks
    shapes: list[tuple[int, ...]] = [(size,), (3, 5), (2,), (), (0,)]
    return [[run.random(shape) for shape in shapes] for _ in range(world)]


@check("the sum on 1–4 ranks, sizes that do not divide", points=3, code="E")
@diagnosis("a chunk is sent or added in the wrong step; follow one chunk round the ring")
def check_sum(run: Run) -> None:
    """E: float64, hidden sizes."""
    for world in WORLDS:
        _compare(run, world, _tensors(run, world), ["sum"])


@check("avg and max on 3 ranks", points=2, code="E")
@diagnosis("`avg` is the sum, divided once at the very end; `max` compares instead of adding")
@in_part
def check_ops(run: Run) -> None:
    """E: the other operations."""
    _compare(run, 3, _tensors(run, 3), ["avg", "max"])


@check("the same tensor, with its dtype; also float32, int64 and a view", points=2, code="E")
@diagnosis("the chunks must be views of the tensor, so that writing to them changes it")
def check_in_place(run: Run) -> None:
    """E: in place, other dtypes, and a tensor that is not contiguous."""
    world = 3
    result = _compare(run, world, in_place.of_any_dtype(run, world), ["sum"])
    in_place.compare_memory(run, result)
    wide = [run.random((5, 7)) for _ in range(world)]
    result = run(drive_transposed, [{"tensor": tensor} for tensor in wide], world=world)
    in_place.compare_view(run, result, wide, reduced(wide, "avg"), "reduced")


def _one(run: Run, world: int) -> Any:
    """One sum of one tensor, for looking at its messages."""
    inputs = [{"tensors": [run.random(DIVISIBLE)], "ops": ["sum"]} for _ in range(world)]
    return run(drive, inputs, world=world)


@check("2(N-1)/N·S bytes sent by each rank", points=2, code="B")
@diagnosis("each step sends one chunk of S/N bytes, and there are 2(N-1) steps")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger."""
    for world in (4, 2):
        result = _one(run, world)
        size = DIVISIBLE * 8
        right = [wire_bytes("all_reduce", size, world, rank, 8)[0] for rank in range(world)]
        hub = [(world - 1) * size] + [size] * (world - 1)
        known: dict[str, Any] = {
            "the whole tensor goes round the ring: send one chunk of it per step": (world - 1)
            * size,
            "one message too many in one of the two passes": size * (2 * world - 1) // world,
            "everything goes through rank 0, a hot spot: its load grows with the ranks": hub,
            "half as many: it was sent as float32": [sent // 2 for sent in right],
        }
        run.bytes(result, right, likely=known)
    world, number = 4, 8  # one float64: however a tensor is cut, each link carries it twice at most
    inputs = [{"tensors": [run.random(())], "ops": ["sum"]} for _ in range(world)]
    cause = "a tensor smaller than the ring goes round whole: cut it as any other"
    for sent in run(drive, inputs, world=world).timeline.sent():
        run.at_most(sent, 2 * number, "bytes sent for a scalar", cause=cause)


@check("2(N-1) steps round the ring, all ranks at once", points=2, code="S")
@diagnosis("in every step each rank sends one chunk to the next and receives another")
def check_ring(run: Run) -> None:
    """S: one message a step, to one neighbour; nobody waits for the whole ring."""
    cause = "chunks travel from neighbour to neighbour, both when they are added and afterwards"
    run.ring(_one(run, 4), cause, walks=2)


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch, of comm, or of comm's own rings."""
    run.messages_alone(_one(run, 4))


@check("large messages end", points=2, code="H")
def check_large(run: Run) -> None:
    """H: chunks of 256 KiB, so that a send cannot hide in a buffer."""
    world = 4
    tensors = [[run.random(world << 15)] for _ in range(world)]
    _compare(run, world, tensors, ["sum"])
