"""owner_muon: whole matrices at their owners, two exchanges, even loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.parallel import Cut, newton_schulz, newton_schulz_flops
from course_lib.parallel import choose_owners as by_cost

EXERCISE = Exercise(
    title="One owner for each matrix",
    core=True,
    minutes=50,
    order=3,
    defines=("choose_owners", "owner_muon"),
    library=("comm", "parallel.Cut", "parallel.newton_schulz", "parallel.newton_schulz_flops"),
    hints=(
        "All ranks know all cuts. So every rank can compute which pieces each rank has and "
        "needs, and how many elements it gets from each: no counts have to be sent.",
        "All pieces for one owner must lie together, so order the matrices by owner. What an "
        "owner receives is ordered by sender, then by matrix; write each piece to its range of "
        "the flat whole matrix. On the way back, use the same list of places, and swap the two "
        "lists of sizes.",
        "`going[j] = sum(directions[n].numel() for n in owned[j])`, `coming[i] = "
        "sum(cuts[n].count(i) for n in mine)`. Call `all_to_all(arrived, sent, group, coming, "
        "going)`, and for the way back `all_to_all(home, back, group, going, coming)`. A rank "
        "that owns no matrix still makes both calls, with empty tensors.",
    ),
)

Shape = tuple[int, int]
Lay = Callable[[torch.Tensor], torch.Tensor]
Ranges = list[list[tuple[int, int]]]  # for each matrix, for each index


class Case(NamedTuple):
    """Matrices, laid in one row that is cut as FSDP cuts it."""

    matrices: list[torch.Tensor]
    ranges: Ranges


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_owners(learner: Any, group: Any, questions: list[Any]) -> list[list[int]]:
    """The owners of each list of shapes among so many parts."""
    return [list(learner.choose_owners(list(shapes), parts)) for shapes, parts in questions]


def drive(
    learner: Any,
    group: Any,
    pieces: list[torch.Tensor],
    shapes: list[Shape],
    ranges: Ranges,
    steps: int,
) -> dict[str, Any]:
    """One exchange; the operations that this rank has made, and who owns what."""
    cuts = [Cut(s, tuple(r)) for s, r in zip(shapes, ranges, strict=True)]
    given = [piece.clone() for piece in pieces]
    owners = list(learner.choose_owners([cut.shape for cut in cuts], group.size))
    with FlopCounterMode(display=False) as counter:
        made = learner.owner_muon(given, cuts, group, steps)
    kept = all(torch.equal(a, b) for a, b in zip(given, pieces, strict=True))
    operations = counter.get_total_flops()
    return {"made": made, "owners": owners, "operations": operations, "kept": kept}


# --- the cases -----------------------------------------------------------------------------------
def cut_in_a_row(matrices: list[torch.Tensor], size: int) -> Case:
    """All matrices one after the other, cut in equal parts: a range for each index, or nothing."""
    total = sum(m.numel() for m in matrices)
    share, begin, ranges = -(-total // size), 0, []
    for matrix in matrices:
        ends = [min(max(share * i - begin, 0), matrix.numel()) for i in range(size + 1)]
        ranges.append(list(zip(ends[:-1], [*ends[1:-1], matrix.numel()], strict=True)))
        begin += matrix.numel()
    return Case(matrices, ranges)


def cut_each(matrices: list[torch.Tensor], size: int) -> Case:
    """Every matrix in nearly equal parts, whatever its rows are."""
    ranges = []
    for matrix in matrices:
        ends = [matrix.numel() * i // size for i in range(size + 1)]
        ranges.append(list(zip(ends[:-1], ends[1:], strict=True)))
    return Case(matrices, ranges)


def piece(whole: torch.Tensor, bounds: tuple[int, int]) -> torch.Tensor:
    """What one index has of a matrix."""
    return whole.reshape(-1)[slice(*bounds)]


def in_two_rows(flat: torch.Tensor) -> torch.Tensor:
    """A piece in another shape, if its length is even."""
    return flat if len(flat) % 2 or not len(flat) else flat.view(2, -1)


def _matrices(run: Run, count: int = 5, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Hidden, of several shapes."""
    shapes = [(run.number(3, 7), run.number(4, 9)) for _ in range(count)]
    return [run.random(shape, dtype) for shape in shapes]


def _ran(run: Run, case: Case, steps: int = 5, lay: Lay = torch.Tensor.flatten) -> Any:
    """The ranks' answers, to pieces laid as they may lie there."""
    size = len(case.ranges[0])
    rows = list(zip(case.matrices, case.ranges, strict=True))
    common = {
        "shapes": [tuple(m.shape) for m in case.matrices], "ranges": case.ranges, "steps": steps,
    }  # fmt: skip
    each = [{"pieces": [lay(piece(m, r[i])) for m, r in rows], **common} for i in range(size)]
    return run(drive, each, world=size)


def _compare(run: Run, case: Case, steps: int = 5, lay: Lay = torch.Tensor.flatten) -> Any:
    """Pieces of the results, on every rank."""
    result = _ran(run, case, steps, lay)
    for rank, found in enumerate(run.each(result.outputs)):
        run.equal(len(found["made"]), len(case.matrices), "the number of results")
        for n, (matrix, ranges) in enumerate(zip(case.matrices, case.ranges, strict=True)):
            bounds, whole = ranges[rank], newton_schulz(matrix, steps)
            mine, row = piece(matrix, bounds), piece(matrix, bounds).view(1, -1)
            alone = newton_schulz(row, steps).view(-1) if len(mine) else mine
            mixed = torch.cat([piece(matrix, r) for r in reversed(ranges)]).view_as(matrix)
            run.close(
                found["made"][n],
                lay(piece(whole, bounds)),
                f"this rank's piece of matrix {n}",
                terms=100,
                likely={
                    "Newton-Schulz ran on this piece alone: the update of a piece is not the "
                    "piece of the update": lay(alone),
                    "the piece came back as it was sent": lay(mine),
                    "the pieces were put together in the wrong order":
                        lay(piece(newton_schulz(mixed, steps), bounds)),
                    "these are other elements of the matrix": lay(whole.flatten()[: len(mine)]),
                }
            )  # fmt: skip
    return result


def loads(shapes: Sequence[Shape], owners: Sequence[int], parts: int) -> list[int]:
    """Operations of each owner."""
    costs = [newton_schulz_flops(shape) for shape in shapes]
    return [
        sum(c for c, o in zip(costs, owners, strict=True) if o == part) for part in range(parts)
    ]


@check("each rank gets its pieces of the single-process results", points=6, code="E")
@diagnosis("owners need whole matrices; the ranges say where each piece lies")
@in_part
def check_values(run: Run) -> None:
    """E: 3 ranks in float64; each matrix cut, and all of them in one row that is cut."""
    matrices = _matrices(run)
    _compare(run, cut_each(matrices, 3))
    _compare(run, cut_in_a_row(matrices, 3))


@check("one rank alone, and other steps", points=1, code="E")
def check_alone(run: Run) -> None:
    """E: a group of one; 2 ranks with two steps."""
    matrices = _matrices(run, 3)
    _compare(run, cut_in_a_row(matrices, 1))
    _compare(run, cut_in_a_row(matrices, 2), steps=2)


@check("more ranks than matrices: a rank that owns none still takes part", points=2, code="H")
@diagnosis("all ranks make both all-to-alls, also with empty tensors; a piece may have any shape")
def check_idle(run: Run) -> None:
    """H: two matrices on 4 ranks; a matrix of which a rank has nothing; what is given stays."""
    result = _compare(run, cut_in_a_row(_matrices(run, 2), 4), lay=in_two_rows)
    for found in run.each(result.outputs):
        cause = "results are tensors of their own"
        run.true(found["kept"], "a direction that was given has changed", cause=cause)


@check("the owners' operations are balanced", points=4, code="M")
@diagnosis("count operations, not matrices, and begin with the most expensive")
def check_balance(run: Run) -> None:
    """M: lists of shapes in which the number of matrices or of elements misleads."""
    small = run.number(8, 17)
    block = [(4 * small, small), (small, 4 * small), (small, small), (small, small)]
    questions: list[tuple[list[Shape], int]] = [
        ([(64, 64), *[(16, 16)] * 7], 2),
        (block * 3, 4),
        ([(8, 512), (64, 64), (8, 512), (64, 64)], 2),
        ([(small, small)] * 5, 3),
        ([(30, 30)], 4),
        ([*[(16, 16)] * 4, (32, 32)], 2),
        ([(16, 32), (20, 20), (16, 20)], 2),
    ]
    found = run(drive_owners, {"questions": questions}, world=2)
    run.equal(found.outputs[1], found.outputs[0], "the owners on rank 1")
    for (shapes, parts), owners in zip(questions, found.outputs[0], strict=True):
        fits = len(owners) == len(shapes) and set(owners) <= set(range(parts))
        run.true(
            fits, f"{owners} is not a list of owners for {len(shapes)} matrices and {parts} parts"
        )
        best = max(loads(shapes, by_cost([newton_schulz_flops(s) for s in shapes], parts), parts))
        even = [n % parts for n in range(len(shapes))]
        elements = by_cost([r * c for r, c in shapes], parts)
        products = by_cost([4 * min(r, c) * r * c for r, c in shapes], parts)
        cause = {
            tuple(even): "the matrices are balanced by count: one large matrix costs more than "
            "many small ones",
            tuple(elements): "the matrices are balanced by elements: operations grow with r²·c",
            tuple(products): "the matrices are balanced by 4·r²·c alone, without 2·r³",
        }.get(tuple(owners), "")
        load = max(loads(shapes, owners, parts))
        if not cause and len(set(owners)) == 1 < min(parts, len(shapes)):
            cause = "one owner has all of them"
        run.at_most(load, best, f"the busiest of {parts} owners", cause=cause)


@check("two all-to-alls, and no unnecessary elements", points=3, code="B")
@diagnosis("send each piece only to its owner, and each result only to the rank that has the piece")
def check_bytes(run: Run) -> None:
    """B: calls and bytes of every rank, from the ledger; in float32."""
    case = cut_each(_matrices(run, dtype=torch.float32), 3)
    result, size = _compare(run, case), 4
    owners = result.outputs[0]["owners"]
    wanted, everywhere = [], []
    for i in range(3):
        rows = list(zip(owners, case.matrices, case.ranges, strict=True))
        own = [end - begin for begin, end in (r[i] for _, _, r in rows)]
        there = sum(c for c, (o, _, _) in zip(own, rows, strict=True) if o != i)
        back = sum(m.numel() - c for c, (o, m, _) in zip(own, rows, strict=True) if o == i)
        wanted.append(size * (there + back))
        everywhere.append(size * 2 * sum(own))  # to both others
    likely: dict[str, Any] = {
        "float32 was sent in float64: send each piece in its own dtype": [2 * n for n in wanted],
        "every matrix was sent to every rank: only its owner needs it": everywhere,
    }
    run.bytes(result, wanted, likely=likely)
    for ledger in run.each(result.ledgers):
        calls = [event.op for event in ledger.calls()]
        likely = {"one exchange for each matrix": ["all_to_all"] * 2 * len(case.matrices)}
        run.equal(calls, ["all_to_all", "all_to_all"], "the list of collectives", likely=likely)


@check("each matrix is computed once", points=2, code="M")
@diagnosis("each rank runs Newton-Schulz only for its own matrices")
def check_operations(run: Run) -> None:
    """M: operations of each rank, counted by torch."""
    case = cut_each(_matrices(run), 3)
    result = _ran(run, case)
    shapes: list[Shape] = [(m.shape[0], m.shape[1]) for m in case.matrices]
    for rank, found in enumerate(run.each(result.outputs)):
        limit = loads(shapes, found["owners"], 3)[rank]
        cause = "it also computes updates of other owners"
        run.at_most(found["operations"], limit, "the operations of this rank", cause=cause)
