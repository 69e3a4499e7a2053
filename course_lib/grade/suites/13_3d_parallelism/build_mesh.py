"""Checks of build_mesh: coordinates and lines of thirteen meshes, groups that work, and refusals.

Notebook: 13 3D parallelism (build_mesh).
Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021), section 3; the order of the axes as in "The Llama 3 Herd of Models" (2024).
Costs: three runs of one rank, one of 8 that makes two meshes, two of 4 that are to be refused.
The production version is torch's DeviceMesh, which lays an array of ranks over the axes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

from course_lib.comm import Group, all_reduce
from course_lib.grade.checks import Exercise, check
from course_lib.grade.faults import RunFault
from course_lib.grade.training import explained

EXERCISE = Exercise(
    name="build_mesh",
    lesson="13_3d_parallelism",
    title="A mesh of five axes, and a group on each",
    core=True,
    minutes=30,
    order=10,
    defines=("coordinates", "rank_of", "axis_ranks", "build_mesh"),
    hints=(
        "How do you turn 12,345 seconds into hours, minutes and seconds? Divide, keep the rest, go "
        "on with the quotient. Which of the five axes are the seconds, and which the hours?",
        "`coordinates`: over `reversed(AXES)`, `rank, place[axis] = divmod(rank, size)`. "
        "`rank_of`: over AXES, `rank = rank * size + place[axis]`. A line: the coordinates of the "
        "rank, with that of one axis replaced by 0, 1, 2, ...",
        "All lines of an axis: `sorted({tuple(axis_ranks(r, axis, sizes)) for r in "
        "range(world.size)})`. Look at *all* tp lines for one whose first and last ranks are on "
        "different nodes, and at the product of the sizes, before the first `world.split`.",
    ),
)

AXES = ("pp", "dp", "ep", "cp", "tp")
Sizes = dict[str, int]
TWELVE: tuple[Sizes, ...] = (
    {"tp": 2, "dp": 2, "pp": 2}, {"dp": 8}, {"tp": 8}, {"pp": 8}, {"cp": 8}, {"ep": 8},
    {"pp": 4, "tp": 2}, {"tp": 4, "dp": 2}, {"cp": 2, "pp": 2, "dp": 2}, {"ep": 2, "dp": 4},
    {"tp": 2, "cp": 2, "ep": 2}, {"pp": 1, "dp": 1, "ep": 4, "cp": 1, "tp": 2},
)  # fmt: skip
NODE = 4  # ranks on a node, where a mesh is made
REAL: tuple[Sizes, ...] = ({"tp": 2, "dp": 2, "pp": 2}, {"cp": 4, "ep": 2})  # of 8 ranks
# Orders of the axes that are not ours, outermost first; "" is the order of `sizes`.
ORDERS = {
    "tp runs slowest here, so its ranks are far apart: it is the innermost axis": AXES[::-1],
    "the axes are in the order of `sizes`: it is AXES that says which is outer": (),
    "dp is outside pp: the order is pp, dp, ep, cp, tp": ("dp", "pp", "ep", "cp", "tp"),
    "ep is outside dp: the order is pp, dp, ep, cp, tp": ("pp", "ep", "dp", "cp", "tp"),
    "cp and ep are swapped: the order is pp, dp, ep, cp, tp": ("pp", "dp", "cp", "ep", "tp"),
    "cp and tp are swapped: tp is the innermost axis": ("pp", "dp", "ep", "tp", "cp"),
}
TOGETHER = (
    "Groups are made by all ranks together: each calls world.split for the same axes in the same "
    "order, with all lines, also those that it is not in."
)
ALL_OR_NONE = (
    "some ranks refused and the others went on to make groups: look at all tp lines, not at the "
    "rank's own"
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_places(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Asks for the coordinates of every rank."""
    return {"said": [[_plain(learner.coordinates(rank, sizes)) for rank in range(_count(sizes))]
                     for sizes in meshes]}  # fmt: skip


def drive_ranks(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Asks for the rank at every place; its axes come in another order than in AXES."""
    said = []
    for sizes in meshes:
        places = [_place(rank, sizes) for rank in range(_count(sizes))]
        said.append([learner.rank_of(dict(sorted(place.items())), sizes) for place in places])
    return {"said": said}


def drive_lines(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Asks for every rank's line on every axis."""
    return {"said": [[{axis: _plain(learner.axis_ranks(rank, axis, sizes)) for axis in AXES}
                      for rank in range(_count(sizes))] for sizes in meshes]}  # fmt: skip


def drive_meshes(learner: Any, group: Any, meshes: list[Sizes]) -> dict[str, Any]:
    """Makes meshes; a sum of 2^rank over each group shows who is in it."""
    return {"said": [_groups(learner.build_mesh(group, sizes, NODE), group.rank)
                     for sizes in meshes]}  # fmt: skip


def drive_refusals(learner: Any, group: Any, cases: list[Any]) -> dict[str, Any]:
    """What build_mesh says to meshes that cannot be."""
    return {"said": [_refusal(learner, group, *case) for case in cases]}


def _refusal(learner: Any, group: Any, sizes: Sizes, node: int) -> list[str]:
    """The exception's type and text; two empty ones if there was none."""
    try:
        learner.build_mesh(group, sizes, node)
    except NotImplementedError:
        raise
    except Exception as error:
        return ["ValueError" if isinstance(error, ValueError) else type(error).__name__, str(error)]
    return ["", ""]


def _groups(mesh: Any, rank: int) -> Any:
    """For each axis what its group says of itself, and who takes part in it."""
    if not isinstance(mesh, dict):
        return type(mesh).__name__
    found = {}
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


def _plain(value: Any) -> Any:
    """Tensors and numbers of other libraries as they print, tuples and ranges as lists."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (int, str, type(None))) else repr(value)


# --- what they must bring back -------------------------------------------------------------------
def _count(sizes: Sizes) -> int:
    return math.prod(sizes.values())


def _place(rank: int, sizes: Sizes, order: Sequence[str] = AXES) -> Sizes:
    """Coordinates, if the last axis of `order` runs fastest."""
    place = {}
    for axis in reversed(order):
        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
    return {axis: place[axis] for axis in AXES}


def _line(rank: int, axis: str, sizes: Sizes, order: Sequence[str] = AXES) -> list[int]:
    """Ranks that differ from one in `axis` alone."""
    places = [_place(other, sizes, order) for other in range(_count(sizes))]
    return [other for other, place in enumerate(places)
            if {**place, axis: 0} == {**places[rank], axis: 0}]  # fmt: skip


def _orders(sizes: Sizes) -> dict[str, tuple[str, ...]]:
    """The wrong orders; those of `sizes` are followed by the axes of size 1."""
    own = (*sizes, *(axis for axis in AXES if axis not in sizes))
    return {why: order or own for why, order in ORDERS.items()}


def _meshes(run: Any) -> list[Sizes]:
    """One with five axes longer than 1 and hidden sizes, then the twelve of eight ranks."""
    drawn = [2, 3, 2, 3, 2]
    drawn[run.number(0, 5)] = 4
    return [{axis: drawn[AXES.index(axis)] for axis in ("cp", "tp", "pp", "ep", "dp")}, *TWELVE]


def _compare(
    run: Any,
    what: str,
    sizes: Sizes,
    said: list[Any],
    right: Callable[[int], Any],
    likely: dict[str, Callable[[int], Any]],
) -> None:
    """Compares what was said of each rank; a likely cause must explain all of the mesh."""
    ranks = range(_count(sizes))
    rank = next((r for r in ranks if said[r] != right(r)), None)
    if rank is None:
        return
    cause = next((why for why, wrong in likely.items()
                  if all(said[r] == wrong(r) for r in ranks)), "")  # fmt: skip
    run.fail(f"{what}, rank {rank} of {_words(sizes)}, is not what it should be",
             expected=repr(right(rank)), measured=repr(said[rank]), cause=cause)  # fmt: skip


def _words(sizes: Sizes) -> str:
    return " × ".join(f"{axis} {size}" for axis, size in sizes.items())


@check("coordinates of every rank, on thirteen meshes", points=3, code="E",
       diagnosis="divide by the sizes, from tp to pp: the rest is the coordinate")  # fmt: skip
def check_coordinates(run: Any) -> None:
    """E: a pure function, so it costs nothing to look at every rank."""
    meshes = _meshes(run)
    for sizes, said in zip(meshes, run(drive_places, {"meshes": meshes}).column("said")[0],
                           strict=True):  # fmt: skip
        def right(rank: int, sizes: Sizes = sizes, order: Sequence[str] = AXES) -> Sizes:
            return _place(rank, sizes, order)

        likely = {why: lambda r, o=order, right=right: right(r, order=o)
                  for why, order in _orders(sizes).items()}  # fmt: skip
        likely |= {
            "ep is missing: coordinates have all five axes":
                lambda r, right=right: {a: c for a, c in right(r).items() if a != "ep"},
            "axes that `sizes` does not name are missing: coordinates have all five axes":
                lambda r, s=sizes, right=right: {a: c for a, c in right(r).items() if a in s},
            "ranks and coordinates are counted from 0":
                lambda r, right=right: {a: c + 1 for a, c in right(r).items()},
            "ranks are counted from 0: this is the rank before":
                lambda r, right=right: right(r - 1),
            "ranks are counted from 0: this is the next rank":
                lambda r, right=right: right(r + 1),
            "strides are mixed: an axis's stride is the product of the sizes inside it":
                lambda r, s=sizes: {a: r // s.get(a, 1) % s.get(a, 1) for a in AXES},
        }  # fmt: skip
        _compare(run, "coordinates", sizes, said, right, likely)


@check("the rank at every place", points=2, code="E",
       diagnosis="from pp to tp: times the size, plus the coordinate")  # fmt: skip
def check_rank_of(run: Any) -> None:
    """E: the way back."""
    meshes = _meshes(run)
    for sizes, said in zip(meshes, run(drive_ranks, {"meshes": meshes}).column("said")[0],
                           strict=True):  # fmt: skip
        def packed(rank: int, order: Sequence[str], sizes: Sizes = sizes) -> int:
            place, number = _place(rank, sizes), 0
            for axis in order:
                number = number * sizes.get(axis, 1) + place[axis]
            return number

        likely = {why: lambda r, o=order, f=packed: f(r, o)
                  for why, order in _orders(sizes).items()}  # fmt: skip
        likely |= {
            "the axes are in the order of `place`: it is AXES that says which is outer":
                lambda r, f=packed: f(r, sorted(AXES)),
            "ranks are counted from 0": lambda r: r + 1,
            "ep is forgotten": lambda r, s=sizes: _without_ep(r, s),
        }  # fmt: skip
        _compare(run, "rank_of the coordinates", sizes, said, lambda rank: rank, likely)


def _without_ep(rank: int, sizes: Sizes) -> int:
    place, number = _place(rank, sizes), 0
    for axis in AXES:
        if axis != "ep":
            number = number * sizes.get(axis, 1) + place[axis]
    return number


@check("axis_ranks: every rank's line on every axis", points=3, code="E",
       diagnosis="the rank's coordinates, with that of one axis running from 0")  # fmt: skip
def check_lines(run: Any) -> None:
    """E: five lines for each rank."""
    meshes = _meshes(run)
    for sizes, said in zip(meshes, run(drive_lines, {"meshes": meshes}).column("said")[0],
                           strict=True):  # fmt: skip
        for axis in AXES:
            lines = [each[axis] for each in said]
            _compare(run, f"the {axis} line", sizes, lines,
                     lambda r, a=axis, s=sizes: _line(r, a, s), _wrong_lines(axis, sizes))


def _wrong_lines(axis: str, sizes: Sizes) -> dict[str, Callable[[int], list[int]]]:
    """Known wrong lines of an axis."""
    size, count = sizes.get(axis, 1), _count(sizes)

    def line(rank: int) -> list[int]:
        return _line(rank, axis, sizes)

    def place(rank: int) -> int:
        return _place(rank, sizes)[axis]

    return {
        "these are the ranks with the same coordinate on this axis: a line has those that differ "
        "in it, and in nothing else":
            lambda r: [o for o in range(count) if place(o) == place(r)],
        "the line begins at this rank: it begins at coordinate 0":
            lambda r: line(r)[place(r):] + line(r)[:place(r)],
        "the rank itself is missing": lambda r: [o for o in line(r) if o != r],
        "these are coordinates: a line has ranks": lambda r: list(range(size)),
        "the ranks of a line ascend": lambda r: line(r)[::-1],
        "ranks are counted from 0": lambda r: [o + 1 for o in line(r)],
        "these are neighbours: only tp's line has those":
            lambda r: list(range(r // size * size, r // size * size + size)),
        **{why: lambda r, o=order: _line(r, axis, sizes, o)
           for why, order in _orders(sizes).items()},
    }  # fmt: skip
