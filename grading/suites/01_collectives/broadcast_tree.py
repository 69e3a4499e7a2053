"""broadcast_tree: any source, 1–5 ranks, one receive a rank, ⌈log2 N⌉ rounds."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import rounds
from grading.references.communication import in_place

EXERCISE = Exercise(
    title="Broadcast by a binomial tree",
    core=True,
    minutes=20,
    order=1,
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
        "Take source 0 and eight ranks, and draw who has the tensor after each round: 0; then 0 "
        "and 1; then 0 to 3; then all. Who sends to whom in each round? What changes for another "
        "source, and what for five ranks?",
        "Count places from the source: place = (index - source) % N. Before the round with reach "
        "= 1, 2, 4, ..., the places below reach have the tensor. Each of them sends it to place + "
        "reach, if there is such a place; the places from reach to 2·reach - 1 receive.",
        "`while reach < group.size:` if `place < reach` and `place + reach < group.size`, send to "
        "`(group.index + reach) % group.size`; if `reach <= place < 2 * reach`, receive from "
        "`(group.index - reach) % group.size`; then double `reach`.",
    ),
)

WORLDS = (1, 2, 3, 5)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, tensors: list[torch.Tensor], sources: list[int]
) -> dict[str, Any]:
    """Broadcasts each tensor from each source."""

    def from_source(source: int) -> in_place.Call:
        return lambda tensor: learner.broadcast_tree(tensor, source, group)

    return in_place.called(list(map(from_source, sources)), tensors)


def drive_transposed(learner: Any, group: Any, tensor: torch.Tensor, source: int) -> dict[str, Any]:
    """Broadcasts a view that is not contiguous."""
    return in_place.called_on_a_view(lambda x: learner.broadcast_tree(x, source, group), tensor)


# --- what they must bring back -------------------------------------------------------------------
def likely(rows: list[torch.Tensor], rank: int, source: int) -> dict[str, torch.Tensor]:
    """Known wrong answers for one tensor on one rank."""
    size = len(rows)
    place, power = (rank - source) % size, 1 << (size.bit_length() - 1)
    unchanged = "the tensor was not changed: no message came to this rank, or not into this tensor"
    if place >= power:
        unchanged += f"; {size} is not a power of two, so the last round is not full"
    elif rank == 0:
        unchanged = "rank 0 kept its own tensor: count places from the source"
    known = {} if rank == source else {unchanged: rows[rank]}
    for other in range(size):
        if other not in (rank, source):
            why = f"this is rank {other}'s tensor, but the source is rank {source}"
            known[f"{why}: count places from the source"] = rows[other]
    return known


def _compare(run: Run, world: int, tensors: list[list[torch.Tensor]], sources: list[int]) -> Any:
    """Broadcasts all tensors from all sources and compares each value on each rank."""
    inputs = [{"tensors": tensors[rank], "sources": sources} for rank in range(world)]
    result = run(drive, inputs, world=world)
    cases = [(source, index) for source in sources for index in range(len(tensors[0]))]
    for place, (source, index) in enumerate(cases):
        for rank, found in enumerate(run.each(result.outputs)):
            rows = [tensors[other][index] for other in range(world)]
            what = f"the tensor ({in_place.shape_of(rows[0])}, source {source}, {world} ranks)"
            run.close(found["values"][place], rows[source], what, likely=likely(rows, rank, source))
    return result


def _one(run: Run, world: int, source: int) -> tuple[Any, torch.Tensor]:
    """One broadcast of one tensor, for looking at its messages."""
    inputs: list[dict[str, Any]] = [
        {"tensors": [run.random(40)], "sources": [source]} for _ in range(world)
    ]
    result = run(drive, inputs, world=world)
    return result, inputs[source]["tensors"][0]


@check("all have the source's tensor: 1–5 ranks, every source", points=3, code="E")
@diagnosis("draw the rounds: who has the tensor already, and who gets it from whom?")
def check_values(run: Run) -> None:
    """E: hidden sizes, an empty tensor and a scalar."""
    for world in WORLDS:
        shapes: list[tuple[int, ...]] = [(run.number(5, 90),), (3, 5), (), (0,)]
        tensors = [[run.random(shape) for shape in shapes] for _ in range(world)]
        _compare(run, world, tensors, list(range(world)))


@check("the tensor keeps its memory; any dtype, and a view", points=2, code="E")
@diagnosis("receive into the tensor that you got, not into another one")
@in_part
def check_in_place(run: Run) -> None:
    """E: in place, other dtypes, and a tensor that is not contiguous."""
    world, source = 3, 2
    result = _compare(run, world, in_place.of_any_dtype(run, world), [source])
    in_place.compare_memory(run, result)
    wide = [run.random((5, 7)) for _ in range(world)]
    inputs = [{"tensor": tensor, "source": source} for tensor in wide]
    result = run(drive_transposed, inputs, world=world)
    in_place.compare_view(run, result, wide, wide[source], "filled")


@check("each rank receives once, the source never", points=2, code="B")
@diagnosis("a rank that has the tensor needs no more messages")
def check_once(run: Run) -> None:
    """B: N-1 messages of S bytes."""
    for world, source in ((4, 1), (5, 3)):
        result, _ = _one(run, world, source)
        for rank, ledger in enumerate(run.each(result.ledgers)):
            sizes = [event.received for event in ledger.events if event.op == "recv"]
            expected = [] if rank == source else [40 * 8]
            known = {
                "the source has the tensor already": [40 * 8],
                "the same tensor came twice": [40 * 8] * 2,
            }
            what = f"the list of bytes of the messages received ({world} ranks)"
            run.equal(sizes, expected, what, likely=known)


@check("at most ⌈log2 N⌉ rounds", points=3, code="S")
@diagnosis("in every round, each rank that has the tensor sends it to one that does not")
def check_rounds(run: Run) -> None:
    """S: the longest chain of messages that wait for each other."""
    for world, source in ((4, 1), (5, 3)):
        result, tensor = _one(run, world, source)
        for output in run.each(result.outputs):
            run.close(output["values"][0], tensor, f"the tensor ({world} ranks)")
        count = rounds(result.ledgers)
        sent = [sum(event.op == "send" for event in book.events) for book in result.ledgers]
        cause = ""
        if sent[source] == world - 1:
            cause = "the source sends to all others, one after another, and they do not help"
        elif max(sent) == 1:
            cause = (
                "this is a chain: each rank waits for the one before it, so the last one "
                "waits longest"
            )
        limit = (world - 1).bit_length()
        run.at_most(count, limit, f"the number of rounds ({world} ranks)", cause=cause)


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch, of comm, or of comm's own trees."""
    run.messages_alone(_one(run, 4, 1)[0])


@check("large messages end", points=1, code="H")
def check_large(run: Run) -> None:
    """H: messages of 512 KiB, so that a send cannot hide in a buffer."""
    world = 4
    _compare(run, world, [[run.random(1 << 16)] for _ in range(world)], [2])
