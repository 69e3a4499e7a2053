"""ring_all_gather: uneven chunks in order, every chunk but one sent, neighbours only."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import chunk_sizes, wire_bytes

EXERCISE = Exercise(
    title="Ring all-gather from messages",
    core=True,
    minutes=20,
    order=3,
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
        "First make room for the whole result, and copy your own chunk to its place. Then think "
        "of one step: which chunk arrived last, and who has not seen it yet?",
        "In step s, rank r sends chunk r-s and receives chunk r-s-1, both modulo N: it sends what "
        "it received in the step before, and in the first step its own. Receive directly into the "
        "chunk's place in the result.",
        "`gathered = chunk.new_empty(sum(sizes))`; `parts = gathered.split(sizes)` are views of "
        "it. Copy `chunk` into `parts[group.index]`; then N-1 times `exchange(parts[...], "
        "group.next, parts[...], group.previous, group)` with the indices of hint 2.",
    ),
)

WORLDS = (1, 2, 3, 4)
EQUAL = 48  # elements; divides by 4


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, chunks: list[torch.Tensor], sizes: list[list[int]]
) -> dict[str, Any]:
    """Gathers each chunk; says what became of it."""
    rows = [
        learner.ring_all_gather(chunk, group, list(each))
        for chunk, each in zip(chunks, sizes, strict=True)
    ]
    pairs = zip(rows, chunks, strict=True)
    same = [isinstance(row, torch.Tensor) and row.is_set_to(chunk) for row, chunk in pairs]
    return {"rows": rows, "chunks": chunks, "same": any(same)}


def drive_strided(learner: Any, group: Any, wide: torch.Tensor, sizes: list[int]) -> dict[str, Any]:
    """Gathers every second element of a row."""
    return {"row": learner.ring_all_gather(wide[::2], group, list(sizes))}


# --- what they must bring back -------------------------------------------------------------------
def likely(chunks: list[torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Known wrong answers on one rank."""
    world = len(chunks)
    known = {}
    for shift in range(1, world):
        turned = torch.cat([chunks[(index + shift) % world] for index in range(world)])
        known[f"all chunks, but not in the order of the ranks: chunk {shift} is first"] = turned
    known["the chunks are in the opposite order"] = torch.cat(chunks[::-1])
    return known


def _compare(run: Run, chunks: list[list[torch.Tensor]]) -> Any:
    """Gathers all chunks (a list for each case, in it one chunk a rank) and compares the rows."""
    world = len(chunks[0])
    sizes = [[chunk.numel() for chunk in case] for case in chunks]
    inputs = [{"chunks": [case[rank] for case in chunks], "sizes": sizes} for rank in range(world)]
    result = run(drive, inputs, world=world)
    for rank, output in enumerate(run.each(result.outputs)):
        for place, case in enumerate(chunks):
            what = f"the row gathered from chunks of {', '.join(map(str, sizes[place]))} elements"
            run.close(output["rows"][place], torch.cat(case), what, likely=likely(case, rank))
            known = {"the chunk was used as a buffer; it must not be changed": case[rank - 1]}
            name = "the chunk, after the call,"
            run.close(output["chunks"][place], case[rank], name, likely=known)
        what = f"the result is the chunk itself in a group of {world}"
        run.true(not output["same"], what, cause="the result is a new tensor, always")
    return result


def _cases(run: Run, world: int) -> list[list[torch.Tensor]]:
    """Equal chunks first, so that a mix-up can be named; then nearly equal, hidden, and empty."""
    hidden = [run.number(1, 40) for _ in range(world)]
    empty = [0 if rank % 2 == 0 else 5 for rank in range(world)]
    lists = [[6] * world, chunk_sizes(6 * world + 1, world), hidden, empty, [0] * world]
    return [[run.random(size) for size in sizes] for sizes in lists]


def _one(run: Run, world: int, count: int) -> Any:
    """One all-gather of one row, for looking at its messages."""
    sizes = chunk_sizes(count, world)
    inputs = [{"chunks": [run.random(size)], "sizes": [sizes]} for size in sizes]
    return run(drive, inputs, world=world)


@check("all chunks in order: 1–4 ranks, equal, uneven and empty", points=3, code="E")
@diagnosis("a chunk is sent in the wrong step or put in the wrong place; follow one of them")
def check_values(run: Run) -> None:
    """E: float64, hidden sizes."""
    for world in WORLDS:
        _compare(run, _cases(run, world))


@check("the dtype is kept; a chunk may be a view", points=2, code="E")
@diagnosis("make buffers with the dtype of the chunk")
@in_part
def check_dtypes(run: Run) -> None:
    """E: other dtypes, and a chunk that is not contiguous."""
    world = 3
    _compare(
        run,
        [
            [run.random(size, torch.float32) for size in (4, 2, 3)],
            [run.integers(-99, 99, size) for size in (1, 5, 2)],
        ],
    )
    sizes = [4, 2, 3]
    wide = [run.random(2 * size) for size in sizes]
    inputs = [{"wide": row, "sizes": sizes} for row in wide]
    result = run(drive_strided, inputs, world=world)
    for output in run.each(result.outputs):
        what = "the row gathered from every second element"
        run.close(output["row"], torch.cat([row[::2] for row in wide]), what)


@check("each rank sends every chunk but one", points=2, code="B")
@diagnosis("each step sends one chunk, and there are N-1 steps")
def check_bytes(run: Run) -> None:
    """B: (N-1)/N·S for equal chunks; exact for others, in either direction of the ring."""
    world = 4
    for count in (EQUAL, EQUAL + 1):
        result = _one(run, world, count)
        whole, own = count * 8, [size * 8 for size in chunk_sizes(count, world)]
        right = [wire_bytes("all_gather", whole, world, rank, 8)[0] for rank in range(world)]
        backward = [whole - own[rank - 1] for rank in range(world)]
        if result.timeline.sent() == backward:
            right = backward
        known: dict[str, Any] = {
            "everything goes through rank 0: a hot spot, the worse the more ranks there are": [
                (world - 1) * whole,
                *own[1:],
            ],
            "every rank sends its own chunk directly to all others: pass on what arrives": [
                (world - 1) * size for size in own
            ],
            "one message too many: N-1 steps are enough": whole,
            "the whole result goes round the ring: send one chunk of it per step": (world - 1)
            * whole,
            "half as many: it was sent as float32": [sent // 2 for sent in right],
        }
        run.bytes(result, right, likely=known)


@check("N-1 steps round the ring, all ranks at once", points=2, code="S")
@diagnosis("in every step each rank sends one chunk to the next and receives another")
def check_ring(run: Run) -> None:
    """S: one message a step, to one neighbour; nobody waits for the whole ring."""
    run.ring(_one(run, 4, EQUAL), "chunks travel from neighbour to neighbour: pass on what arrives")


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch, of comm, or of comm's own rings."""
    run.messages_alone(_one(run, 4, EQUAL))


@check("large messages end", points=2, code="H")
def check_large(run: Run) -> None:
    """H: chunks of 256 KiB, so that a send cannot hide in a buffer."""
    _compare(run, [[run.random(1 << 15) for _ in range(4)]])
