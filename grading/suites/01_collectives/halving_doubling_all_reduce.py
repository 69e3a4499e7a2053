"""halving_doubling_all_reduce: any N, 2(N-1)/N·S bytes in 2·log2 N rounds."""

from __future__ import annotations

from typing import Any, cast

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import rounds, wire_bytes
from grading.references.communication import in_place

EXERCISE = Exercise(
    title="All-reduce by halving and doubling",
    core=False,
    minutes=45,
    order=6,
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
        "Take four ranks first. In the first round ranks 0 and 2 swap halves, and so do 1 and 3: "
        "which half does each keep? In the second round 0 and 1 swap quarters, and so do 2 and 3. "
        "Now each rank has one quarter that is complete. How do all ranks get all quarters?",
        "Halving and doubling are mirror images, which suggests a recursion: reduce(part, "
        "distance) swaps halves with partner `index ^ distance` and adds; calls itself with the "
        "kept half and distance // 2; then swaps again, this time the halves that are now "
        "complete.",
        "`low, high = part.tensor_split(2)`; keep `low` if `group.index < partner`, else `high`. "
        "Ranks with index `power = 1 << (group.size.bit_length() - 1)` or more send everything to "
        "`index - power` and wait for the result; the others add what such a rank sends, call "
        "`reduce(data, power // 2)`, and send the result back.",
    ),
)

WORLDS = (1, 2, 3, 4, 6)  # of three ranks one is left over, of six two
DIVISIBLE = 48  # elements; divides by 2 and 4


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """Sums each tensor."""
    return in_place.called([lambda x: learner.halving_doubling_all_reduce(x, group)], tensors)


def drive_transposed(learner: Any, group: Any, tensor: torch.Tensor) -> dict[str, Any]:
    """Sums a view that is not contiguous."""
    return in_place.called_on_a_view(
        lambda x: learner.halving_doubling_all_reduce(x, group), tensor
    )


# --- what they must bring back -------------------------------------------------------------------
def likely(rows: list[torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Known wrong answers for one tensor on one rank."""
    total, world = cast(torch.Tensor, sum(rows)), len(rows)
    power = 1 << (world.bit_length() - 1)
    left = "the ranks beyond the power of two"
    unchanged = "the tensor was not changed: work on it in place, not on a copy"
    if rank >= power:
        unchanged = f"the tensor was not changed: {left} must get the result back"
    known = {unchanged: rows[rank], "this is the mean: the sum must not be divided": total / world}
    if power < world:
        handed = f"{left} are not in the sum: they must send their tensors first"
        known[handed] = cast(torch.Tensor, sum(rows[:power]))
    return known


def _compare(run: Run, world: int, tensors: list[list[torch.Tensor]]) -> Any:
    """Sums all tensors on `world` ranks and compares each value on each rank."""
    result = run(drive, [{"tensors": tensors[rank]} for rank in range(world)], world=world)
    for rank, found in enumerate(run.each(result.outputs)):
        for index in range(len(tensors[0])):
            rows = [tensors[other][index] for other in range(world)]
            what = f"the tensor ({in_place.shape_of(rows[0])}, {world} ranks)"
            right, known = torch.stack(rows).sum(0), likely(rows, rank)
            run.close(found["values"][index], right, what, terms=world, likely=known)
    return result


def _one(run: Run, world: int) -> Any:
    """One sum of one tensor, for looking at its messages; the same run for all checks."""
    return run(drive, [{"tensors": [torch.ones(DIVISIBLE).double()]}] * world, world=world)


@check("the sum on 1–6 ranks, sizes that do not divide", points=3, code="E")
@diagnosis("partners must keep different halves, and later swap the halves that are complete")
def check_sum(run: Run) -> None:
    """E: float64, hidden sizes, one smaller than the world, an empty and a scalar."""
    for world in WORLDS:
        shapes: list[tuple[int, ...]] = [(4 * run.number(5, 60) + 3,), (3, 5), (2,), (), (0,)]
        _compare(run, world, [[run.random(shape) for shape in shapes] for _ in range(world)])


@check("the same tensor, with its dtype; also float32, int64 and a view", points=2, code="E")
@diagnosis("the halves must be views of the tensor, so that writing to them changes it")
@in_part
def check_in_place(run: Run) -> None:
    """E: in place, other dtypes, and a tensor that is not contiguous."""
    world = 3
    result = _compare(run, world, in_place.of_any_dtype(run, world))
    in_place.compare_memory(run, result)
    wide = [run.random((5, 7)) for _ in range(world)]
    result = run(drive_transposed, [{"tensor": tensor} for tensor in wide], world=world)
    in_place.compare_view(run, result, wide, torch.stack(wide).sum(0), "summed")


@check("2(N-1)/N·S bytes on 4 ranks; at most S more if ranks are left over", points=2, code="B")
@diagnosis("halving sends S/2, S/4, ..., and doubling sends the same in reverse order")
def check_bytes(run: Run) -> None:
    """B: exact for a power of two; a limit where ranks are left over."""
    size, world = DIVISIBLE * 8, 4
    right = [wire_bytes("all_reduce", size, world, rank, 8)[0] for rank in range(world)]
    known: dict[str, Any] = {
        "whole tensors are exchanged: send only halves": 2 * size,
        "everything goes through rank 0: a hot spot, the worse the more ranks there are": [
            (world - 1) * size
        ]
        + [size] * (world - 1),
        "half as many: it was sent as float32": [sent // 2 for sent in right],
    }
    run.bytes(_one(run, world), right, likely=known)
    for world, power in ((3, 2), (6, 4)):
        limit = wire_bytes("all_reduce", size, power, 0, 8)[0] + size
        result = _one(run, world)
        for sent in run.each(result.timeline.sent()):
            run.at_most(sent, limit, f"the number of bytes sent by one of {world} ranks")


@check("2·log2 N rounds, two more if ranks are left over", points=3, code="S")
@diagnosis("partners exchange at the same time: log2 N rounds of halving, log2 N of doubling")
def check_rounds(run: Run) -> None:
    """S: the longest chain of messages that wait for each other."""
    for world in (4, 3, 6):
        limit = 2 * (world - 1).bit_length()
        result = _one(run, world)
        for output in run.each(result.outputs):
            what = f"the sum of ones ({world} ranks)"
            run.close(output["values"][0], torch.full((DIVISIBLE,), float(world)).double(), what)
        count = rounds(result.ledgers)
        ring = "this is the ring: it sends the same bytes, in 2(N-1) rounds"
        cause = ring if count == 2 * (world - 1) else ""
        run.at_most(count, limit, f"the number of rounds ({world} ranks)", cause=cause)


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch, of comm, or of comm's own algorithms."""
    for world in (4, 3):
        run.messages_alone(_one(run, world))


@check("large messages end", points=1, code="H")
def check_large(run: Run) -> None:
    """H: halves of 256 KiB, so that a send cannot hide in a buffer."""
    world = 4
    _compare(run, world, [[run.random(1 << 16)] for _ in range(world)])
