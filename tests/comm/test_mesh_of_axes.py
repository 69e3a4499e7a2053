"""Groups on several axes of a mesh: who is in them, that they talk, and that they are made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.comm.mesh import AXES, axis_lines, coordinates

Ranks = Callable[..., list[Any]]


def test_lines_of_several_axes() -> None:
    sizes = {"pp": 2, "dp": 2, "cp": 3, "tp": 2}
    for axes in [("dp", "cp"), ("pp", "tp"), (), tuple(sizes)]:
        lines = axis_lines(axes, sizes)
        assert sorted(rank for line in lines for rank in line) == list(range(24))
        for line in lines:
            assert line == sorted(line)
            fixed = {
                tuple(c for axis, c in coordinates(rank, sizes).items() if axis not in axes)
                for rank in line
            }
            assert len(fixed) == 1, "ranks of a line differ in these axes alone"
    assert axis_lines(("dp", "cp"), sizes)[0] == [0, 2, 4, 6, 8, 10]


def test_one_axis_is_as_before() -> None:
    assert axis_lines("tp", {"pp": 2, "tp": 2}) == axis_lines(("tp",), {"pp": 2, "tp": 2})


SIZES = {"pp": 2, "dp": 2, "cp": 1, "tp": 2}
ASKED = [("dp", "cp"), ("cp", "dp"), ("pp", "tp"), ("pp", "dp", "ep", "cp", "tp"), ("ep", "cp")]


def test_groups_on_several_axes(ranks: Ranks) -> None:
    def run(world: Group) -> dict[str, Any]:
        mesh = Mesh(world, SIZES)
        sums = []
        for axes in ASKED:
            number = torch.tensor(2.0**world.rank)
            all_reduce(number, mesh[axes])
            sums.append(int(number))
        return {
            "sums": sums,
            "ranks": [mesh[axes].ranks for axes in ASKED],
            "names": [mesh[axes].axis for axes in ASKED],
            "once": all(mesh[axes] is mesh[axes] for axes in [*ASKED, *AXES]),
            "shared": mesh["dp", "cp"].transport is mesh["dp"].transport
            and mesh[AXES].transport is world.transport
            and mesh["ep"].transport is mesh["cp"].transport,
            "left out": (mesh["ep"].ranks, mesh["ep"].axis),
            "split": mesh["pp", "tp"].split([[0, 3], [1, 2]], "corners").ranks,
        }

    for rank, found in enumerate(ranks(run, 8)):
        for axes, members, total in zip(ASKED, found["ranks"], found["sums"], strict=True):
            known = [axis for axis in SIZES if axis in axes]
            line = next(line for line in axis_lines(known, SIZES) if rank in line)
            assert list(members) == line
            assert total == sum(2**other for other in line)
        assert found["names"] == ["dp_cp", "dp_cp", "pp_tp", "pp_dp_ep_cp_tp", "ep_cp"]
        assert found["once"] and found["shared"]
        assert found["left out"] == ((rank,), "ep")
        # Every line of a mesh may be cut at the same time: each makes its own group.
        line = found["ranks"][2]
        at = line.index(rank)
        assert found["split"] == ((line[0], line[3]) if at in (0, 3) else (line[1], line[2]))
