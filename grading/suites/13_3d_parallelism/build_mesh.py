"""build_mesh: coordinates and lines of thirteen meshes, groups that work, and refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from course_lib.comm import Group, all_reduce
from course_lib.grade.suite import Exercise, Run, because, check, diagnosis
from grading.references.mesh.coordinates import AXES, TWELVE, Grid, Sizes, Tables

EXERCISE = Exercise(
    title="A mesh of five axes, and a group on each",
    core=True,
    minutes=30,
    order=10,
    defines=("coordinates", "rank_of", "axis_ranks", "build_mesh"),
    library=("comm.Group",),
    hints=(
        "How do you turn 12,345 seconds into hours, minutes and seconds? Divide, keep the "
        "remainder, and continue with the quotient. Which of the five axes are the seconds, and "
        "which the hours?",
        "`coordinates`: over `reversed(AXES)`, `rank, place[axis] = divmod(rank, size)`. "
        "`rank_of`: over AXES, `rank = rank * size + place[axis]`. A line: the coordinates of the "
        "rank, with that of one axis replaced by 0, 1, 2, ...",
        "All lines of an axis: `sorted({tuple(axis_ranks(r, axis, sizes)) for r in "
        "range(world.size)})`. Look at *all* tp lines for one whose first and last ranks are on "
        "different nodes, and at the product of the sizes, before the first `world.split`.",
    ),
)

NODE = 2  # ranks on a node, where a mesh is made
REAL: tuple[Sizes, ...] = ({"tp": 2, "dp": 1, "pp": 2}, {"cp": 2, "dp": 2}, {"ep": 4})  # of 4 ranks
TOGETHER = (
    "Groups are made by all ranks together: each calls world.split for the same axes in the same "
    "order, with all lines, including those that it is not in."
)
ALL_OR_NONE = (
    "some ranks refused and the others went on to make groups: look at all tp lines, not at the "
    "rank's own"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_places(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Asks for the coordinates of every rank."""
    return {
        "said": [
            [_plain(learner.coordinates(rank, sizes)) for rank in _ranks(sizes)] for sizes in meshes
        ]
    }


def drive_ranks(learner: Any, group: Any, meshes: list[Any]) -> dict[str, Any]:
    """Asks for the rank at every place."""
    return {
        "said": [
            [_plain(learner.rank_of(place, sizes)) for place in places] for sizes, places in meshes
        ]
    }


def drive_lines(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Asks for every rank's line on every axis."""
    return {
        "said": [
            [
                {axis: _plain(learner.axis_ranks(rank, axis, sizes)) for axis in AXES}
                for rank in _ranks(sizes)
            ]
            for sizes in meshes
        ]
    }


def drive_meshes(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Makes meshes; a sum of 2^rank over each group shows who is in it."""
    return {
        "said": [_groups(learner.build_mesh(group, sizes, NODE), group.rank) for sizes in meshes]
    }


def drive_refusals(learner: Any, group: Any, cases: list[Any]) -> dict[str, Any]:
    """What build_mesh says to meshes that cannot be."""
    axes, split = list[str](), group.split

    def noted(parts: Any, axis: Any) -> Any:
        axes.append(str(axis))
        return split(parts, axis)

    group.split = noted
    return {"said": [_refusal(learner, group, axes, *case) for case in cases]}


def _refusal(
    learner: Any, group: Any, axes: list[str], sizes: Sizes, node: int
) -> tuple[str, str, list[str]]:
    """The exception's type and text, both empty if there was none; and the groups made before."""
    axes.clear()
    try:
        learner.build_mesh(group, sizes, node)
    except NotImplementedError:
        raise
    except Exception as error:
        name = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        return name, str(error), [*axes]
    return "", "", [*axes]


def _groups(mesh: Any, rank: int) -> Any:
    """For each axis what its group says of itself, and who takes part in it."""
    if not isinstance(mesh, dict):
        return type(mesh).__name__
    found: dict[str, Any] = {}
    for axis in sorted(mesh, key=str):
        group = mesh[axis]
        if not isinstance(group, Group):
            found[axis] = type(group).__name__
            continue
        total = torch.tensor(1 << rank)
        all_reduce(total, group)
        members = [bit for bit in range(64) if int(total) >> bit & 1]
        found[axis] = {"ranks": list(group.ranks), "index": group.index, "axis": group.axis,
                       "members": members}  # fmt: skip
    return found


def _ranks(sizes: Sizes) -> range:
    return range(math.prod(sizes.values()))


def _plain(value: Any) -> Any:
    """Tensors and numbers of other libraries as they print, tuples and ranges as lists."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, str, type(None))) else repr(value)


# --- what they must bring back -------------------------------------------------------------------
def _meshes(run: Run) -> list[Sizes]:
    """One with five axes longer than 1 and hidden sizes, then the twelve of eight ranks."""
    drawn = [2, 3, 2, 3, 2]
    drawn[run.number(0, 5)] = 4
    return [{axis: drawn[AXES.index(axis)] for axis in ("cp", "tp", "pp", "ep", "dp")}, *TWELVE]


def _asked(run: Run, drive: Callable[..., Any]) -> Iterator[tuple[Grid, list[Any]]]:
    """Each mesh, and what was said of each of its ranks."""
    grids = [Grid(sizes) for sizes in _meshes(run)]
    given: list[Any] = [grid.sizes for grid in grids]
    if drive is drive_ranks:  # the axes of a place come in another order than in AXES
        given = [
            [grid.sizes, [dict(sorted(grid.place(r).items())) for r in grid.ranks]]
            for grid in grids
        ]
    yield from zip(grids, run(drive, {"meshes": given}).outputs[0]["said"], strict=True)


def _compare(
    run: Run, what: str, grid: Grid, said: list[Any], right: list[Any], known: Callable[[], Tables]
) -> None:
    """Compares what was said of each rank; a known mistake must explain all of the mesh."""
    if said == right:
        return
    rank = next(rank for rank in grid.ranks if said[rank] != right[rank])
    run.fail(
        f"{what} of rank {rank} of {grid} is not what it should be",
        expected=repr(right[rank]),
        measured=repr(said[rank]),
        cause=next((why for why, table in known().items() if table == said), ""),
    )


@check("coordinates of every rank, on thirteen meshes", points=3, code="E")
@diagnosis("divide by the sizes, from tp to pp: each remainder is a coordinate")
def check_coordinates(run: Run) -> None:
    """E: a pure function, so it costs nothing to look at every rank."""
    for grid, said in _asked(run, drive_places):
        right = [grid.place(rank) for rank in grid.ranks]
        _compare(run, "coordinates", grid, said, right, grid.wrong_places)


@check("the rank at every place", points=2, code="E")
@diagnosis("from pp to tp: times the size, plus the coordinate")
def check_rank_of(run: Run) -> None:
    """E: the way back."""
    for grid, said in _asked(run, drive_ranks):
        _compare(run, "rank_of the place", grid, said, list(grid.ranks), grid.wrong_ranks)


@check("axis_ranks: every rank's line on every axis", points=3, code="E")
@diagnosis("the rank's coordinates, with that of one axis running from 0")
def check_lines(run: Run) -> None:
    """E: five lines for each rank."""
    for grid, said in _asked(run, drive_lines):
        for axis in ("ep", "dp", "cp", "tp", "pp"):  # ep's is neighbours in no order of the axes
            _compare(
                run,
                f"the {axis} line",
                grid,
                [each[axis] for each in said],
                [grid.line(rank, axis) for rank in grid.ranks],
                partial(grid.wrong_lines, axis),
            )


# --- groups on real ranks ------------------------------------------------------------------------
def _made(run: Run) -> Iterator[tuple[Grid, int, str, Any]]:
    """For each mesh, rank and axis: the group that the rank got."""
    result = _explained(run, drive_meshes, {"meshes": list(REAL)}, 4, TOGETHER)
    for number, grid in enumerate(map(Grid, REAL)):
        for rank, said in enumerate(run.each(result.column("said"))):
            mesh, all_axes = said[number], sorted(AXES)
            run.true(
                isinstance(mesh, dict),
                "build_mesh does not return a dict",
                expected="a dict: axis to Group",
                measured=str(mesh),
            )
            run.true(
                list(mesh) == all_axes,
                f"build_mesh of {grid} has the wrong axes",
                expected=", ".join(all_axes),
                measured=", ".join(mesh),
                cause="every one of the five axes has a group, including those of size 1, and "
                "nothing else has one",
            )
            for axis in AXES:
                run.true(
                    isinstance(mesh[axis], dict),
                    f"the {axis} group is not a Group",
                    measured=str(mesh[axis]),
                    cause="world.split returns one",
                )
                yield grid, rank, axis, mesh[axis]


def _explained(run: Run, drive: Any, inputs: Any, world: int, reason: str) -> Any:
    """The result, or the fault with a reason if ranks did not make the same groups."""
    with because(deadlock=reason, mismatch=reason, wall=reason, killed=reason):
        return run(drive, inputs, world=world)


@check("groups of 4 ranks on three meshes", points=4, code="E")
@diagnosis("split the world for each axis, with all of its lines")
def check_groups(run: Run) -> None:
    """E: what a group says of itself, and who takes part in a sum over it."""
    for grid, rank, axis, group in _made(run):
        what, line = f"of the {axis} group of {grid}", grid.line(rank, axis)
        others = {
            f"this is the {other} line: lines and names are mixed": grid.line(rank, other)
            for other in AXES
            if other != axis
        }
        likely = {
            "this is the world": list(grid.ranks),
            **others,
            "the ranks of a line must ascend: an index is a coordinate": line[::-1],
            **{why: other.line(rank, axis) for why, other in grid.others().items()},
        }
        run.equal(group["ranks"], line, f"the list of ranks {what}", likely=likely)
        name = f"the ranks that take part in a sum over the ranks {what}"
        run.equal(group["members"], line, name)
        run.equal(group["index"], grid.place(rank)[axis], f"the index {what}")
        run.equal(group["axis"], axis, f"the axis {what}")


@check("tp's ranks share a node", points=2, code="E")
@diagnosis("tp is the innermost axis, so its ranks are neighbours")
def check_nodes(run: Run) -> None:
    """E: measured on the groups: over how many nodes each goes."""
    for grid, rank, axis, group in _made(run):
        if axis == "tp":
            nodes = sorted({member // NODE for member in group["ranks"]})
            likely = {
                "tp goes across nodes: it communicates most, and must be the innermost axis": [0, 1]
            }
            what = f"with {NODE} ranks on each node, the list of nodes of the tp group of {grid}"
            run.equal(nodes, [rank // NODE], what, likely=likely)


# Sizes, ranks per node, and what the message must say, or nothing if it fits; on two ranks.
Case = tuple[Sizes, int, tuple[str, ...]]
UNFIT: tuple[Case, ...] = (
    ({"dp": 2, "tp": 4}, 4, ("8", "2")),
    ({"dp": 3}, 4, ("3", "2")),
    ({"pp": 1}, 4, ("1", "2")),
    ({}, 4, ("1", "2")),
    ({"ddp": 2}, 4, ("ddp",)),
    ({"dp": 2, "sp": 1}, 4, ("sp",)),
    ({"dp": -1, "ep": -1, "pp": 2}, 4, ("-1",)),
    ({"dp": 0, "pp": 2}, 4, ("0",)),
)
ACROSS: tuple[Case, ...] = (({"tp": 2}, 1, ("tp", "2", "1")),)
ONE_LINE: tuple[Case, ...] = (({"tp": 2, "dp": 2}, 3, ("tp", "2", "3")),)  # on four
PART_OF_A_NODE: tuple[Case, ...] = (({"tp": 2, "dp": 2}, 5, ()),)  # so is this one


def _check_refused(
    run: Run, looked_at: Sequence[Case], why: str, cases: Sequence[Case], world: int
) -> None:
    """Every rank must have said no to these of the cases, with these words; yes without any."""
    given = {"cases": [[sizes, node] for sizes, node, _ in cases]}
    result = _explained(run, drive_refusals, given, world, ALL_OR_NONE)
    for sizes, node, words in looked_at:
        mesh = f"a mesh of {Grid(sizes)} on {world} ranks, {node} on each node,"
        for said in run.each(result.column("said")):
            kind, text, made = said[cases.index((sizes, node, words))]
            if not words:
                fits = "every tp line is on one node, whether tp divides a node's ranks or not"
                run.true(kind == "", f"{mesh} was refused", measured=text[:160], cause=fits)
                continue
            run.true(kind != "", f"{mesh} was not refused", cause=why, expected="ValueError")
            run.true(
                kind == "ValueError",
                f"{mesh} was refused with a different exception",
                expected="ValueError",
                measured=f"{kind}: {text}"[:160],
            )
            run.true(
                not made,
                f"{mesh} was refused after groups had been made",
                measured=f"split for {', '.join(made)}",
                cause="look at the sizes and at all tp lines before the first world.split",
            )
            found = re.findall(r"-?\d+|[a-z]+", text)
            missing = [word for word in words if word not in found]
            run.true(
                not missing,
                f"the message does not say {' and '.join(missing)}",
                expected=f"a message that refuses {mesh.rstrip(',')}, with what was asked and "
                "what is there",
                measured=text[:160],
            )


@check("sizes that do not fit the world are refused with a helpful message", points=2, code="E")
@diagnosis("look at the names, the sizes and their product first")
def check_sizes_refused(run: Run) -> None:
    """E: before any group is made."""
    why = "such a mesh has no place for some ranks, or places for none"
    _check_refused(run, UNFIT, why, UNFIT + ACROSS, 2)


@check("tp across nodes is refused", points=2, code="E")
@diagnosis("the ranks of a tp line must be on one node")
def check_across_refused(run: Run) -> None:
    """E: every tp line crosses."""
    why = "tp goes across nodes: it would communicate twice per block and pass over slow links"
    _check_refused(run, ACROSS, why, UNFIT + ACROSS, 2)


@check("all ranks refuse, or none", points=2, code="H")
@diagnosis("look at all tp lines, not at the rank's own")
def check_together(run: Run) -> None:
    """H: of two tp lines one is on one node, and the other is not; and both are on a large one."""
    cases = ONE_LINE + PART_OF_A_NODE
    _check_refused(run, cases, ALL_OR_NONE, cases, 4)
