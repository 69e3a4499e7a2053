"""all_to_all_v: pieces of any size where they belong, no message for an empty one."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, because, check, diagnosis, in_part

EXERCISE = Exercise(
    title="All-to-all with pieces of any size",
    core=True,
    minutes=25,
    order=5,
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
        "Write down who sends what to whom for three ranks: a table with a row for each sender "
        "and a column for each receiver. `inputs` is your row, `outputs` your column. What is on "
        "the diagonal, and in which order can all ranks exchange without waiting in a circle?",
        "In step s = 1 ... N-1, send to the rank s places ahead and receive from the rank s "
        "places behind: in each step every rank sends one message and receives one. Start the "
        "receive before you wait for the send.",
        "`to, source = (group.index + step) % group.size, (group.index - step) % group.size`; an "
        "`irecv` into `outputs[source]` if that has elements, an `isend` of `inputs[to]` if that "
        "has; then wait for both. Each end looks at its own tensor to see if there is a message.",
    ),
)

Table = list[list[torch.Tensor]]  # table[i][j] goes from rank i to rank j
BEFORE = -7  # what outputs hold before the call
ONE_END = "Is an empty piece skipped at one end only? Each end must look at its own tensor."


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, inputs: list[list[torch.Tensor]], shapes: list[list[list[int]]]
) -> dict[str, Any]:
    """Sends the pieces of each case; `shapes` are those of the outputs."""
    outputs = []
    for pieces, forms in zip(inputs, shapes, strict=True):
        room = [pieces[0].new_full(tuple(form), BEFORE) for form in forms]
        learner.all_to_all_v(list(room), pieces, group)
        outputs.append(room)
    return {"outputs": outputs, "inputs": inputs}


def drive_columns(learner: Any, group: Any, inputs: torch.Tensor) -> dict[str, Any]:
    """Pieces that are cut out of the middle dim, so none is contiguous, nor can be seen as flat."""
    outputs = torch.full_like(inputs, BEFORE)
    learner.all_to_all_v(list(outputs.unbind(1)), list(inputs.unbind(1)), group)
    return {"outputs": outputs}


# --- what they must bring back -------------------------------------------------------------------
def likely(table: Table, source: int, rank: int) -> dict[str, torch.Tensor]:
    """Known wrong contents of the output on `rank` that comes from `source`."""
    empty = torch.full_like(table[source][rank], BEFORE)
    why = "nothing was written to it: the output must be filled in place"
    if source == rank:
        why = "nothing was written to it: a rank's piece for itself must be copied"
    known = {why: empty}
    for i, row in enumerate(table):
        for j, piece in enumerate(row):
            if (i, j) != (source, rank):
                known[
                    f"this is what rank {i} has for rank {j}, not rank {source} for rank {rank}"
                ] = piece
    return known


def _send(run: Run, *tables: Table) -> Any:
    """Sends tables of pieces, one after the other."""
    ranks = range(len(tables[0]))
    given = [
        {
            "inputs": [table[rank] for table in tables],
            "shapes": [[list(row[rank].shape) for row in table] for table in tables],
        }
        for rank in ranks
    ]
    return run(drive, given, world=len(ranks))


def _compare(run: Run, *tables: Table) -> None:
    """Sends tables of pieces and compares each output on each rank."""
    ranks = range(len(tables[0]))
    for rank, output in enumerate(run.each(_send(run, *tables).outputs)):
        for case, table in enumerate(tables):
            for source in ranks:
                known = likely(table, source, rank)
                what = f"outputs[{source}] ({len(ranks)} ranks)"
                run.close(output["outputs"][case][source], table[source][rank], what, likely=known)
                what = f"inputs[{source}], after the call,"
                run.close(output["inputs"][case][source], table[rank][source], what)


def _table(run: Run, sizes: list[list[int]]) -> Table:
    """Random pieces of given sizes."""
    return [[run.random(size) for size in row] for row in sizes]


def _uneven(run: Run, world: int) -> list[list[int]]:
    """Hidden sizes; every other piece is empty, never those in both directions of a pair."""
    return [
        [0 if (i + j) % 2 and i < j else run.number(1, 30) for j in range(world)]
        for i in range(world)
    ]


@check("pieces of equal size, on 4 ranks and on one", points=2, code="E")
@diagnosis("inputs[j] goes to rank j; outputs[i] comes from rank i")
def check_equal(run: Run) -> None:
    """E: float64; with equal sizes, a mix-up can be named."""
    for world in (4, 1):
        _compare(run, _table(run, [[5] * world for _ in range(world)]))


@check("pieces of any size, some of them empty, 2–4 ranks", points=3, code="E")
@diagnosis("both ends must agree whether there is a message; each can tell from its own tensor")
def check_uneven(run: Run) -> None:
    """E: hidden sizes; then ranks that get nothing, or send nothing, or neither."""
    extreme = {2: [[0, 0], [0, 0]], 3: [[3, 0, 4], [0, 0, 0], [2, 0, 1]], 4: [[0] * 4, [9] * 4] * 2}
    for world, sizes in extreme.items():
        with because(
            deadlock="{} " + ONE_END
        ):  # pieces that are not empty hang in the check before
            _compare(run, _table(run, _uneven(run, world)), _table(run, sizes))


@check("rows of matrices, other dtypes, and views", points=2, code="E")
@diagnosis("a piece may have any shape, and may be non-contiguous")
@in_part
def check_forms(run: Run) -> None:
    """E: tokens as rows (empty: 0×3), int64, and columns."""
    counts = [[2, 0, 1], [1, 3, 0], [0, 4, 2]]
    _compare(run, [[run.integers(-99, 99, (count, 3)) for count in row] for row in counts])
    world = 3
    wide = [run.random((6, world, 2)) for _ in range(world)]
    result = run(drive_columns, [{"inputs": m} for m in wide], world=world)
    for rank, output in enumerate(run.each(result.outputs)):
        expected = torch.stack([wide[source][:, rank] for source in range(world)], 1)
        untouched = torch.full_like(expected, BEFORE)
        untouched[:, rank] = expected[:, rank]
        known = {"a non-contiguous output was copied and the copy filled": untouched}
        what = "the tensor whose parts along dim 1 are the outputs"
        run.close(output["outputs"], expected, what, likely=known)


@check("each byte is sent once, straight to its receiver", points=2, code="B")
@diagnosis("a rank sends its pieces for the others, and nothing else")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger."""
    world = 4
    for sizes in ([[5] * world for _ in range(world)], _uneven(run, world)):
        result = _send(run, _table(run, sizes))
        right = [8 * (sum(row) - row[i]) for i, row in enumerate(sizes)]
        passed_on = 8 * sum(sum(row[1:]) - row[i] for i, row in enumerate(sizes) if i > 0)
        known = {
            "every rank gets everything: send each piece only to its receiver": [
                (world - 1) * 8 * sum(row) for row in sizes
            ],
            "everything goes through rank 0: a hot spot, the worse the more ranks there are": [
                right[0] + passed_on,
                *right[1:],
            ],
            "half as many: it was sent as float32": [sent // 2 for sent in right],
        }
        run.bytes(result, right, likely=known)


@check("no message for an empty piece, and one for each other piece", points=2, code="B")
@diagnosis("an empty message takes as long as any other small one")
def check_count(run: Run) -> None:
    """B: the number of messages; an empty piece is 2×0, so its `len` is not 0."""
    sizes = [[3, 0, 4], [0, 0, 0], [2, 0, 1]]
    result = _send(run, [[run.random((2, size)) for size in row] for row in sizes])
    for rank, ledger in enumerate(run.each(result.ledgers)):
        sent = sum(event.op == "send" for event in ledger.events)
        expected = sum(size > 0 for j, size in enumerate(sizes[rank]) if j != rank)
        what = f"the number of messages sent, for pieces of 2×{sizes[rank]},"
        empty = "empty pieces were sent as well: `numel()` is 0 for an empty piece of any shape"
        run.equal(sent, expected, what, likely={empty: len(sizes) - 1})


@check("built from messages alone", points=1, code="X")
@diagnosis("this exercise is to build the collective yourself: use send, recv and exchange")
def check_messages(run: Run) -> None:
    """X: no collective of torch or of comm, and not comm's own exchange."""
    run.messages_alone(_send(run, _table(run, [[5] * 4 for _ in range(4)])))


@check("large messages end", points=1, code="H")
def check_large(run: Run) -> None:
    """H: pieces of up to 384 KiB, so that a send cannot hide in a buffer."""
    sizes = [[(1 << 14) * ((i + 2 * j) % 4) for j in range(4)] for i in range(4)]
    _compare(run, _table(run, sizes))
