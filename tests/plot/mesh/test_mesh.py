"""The mesh explorer: what is lit are the groups of the mesh, and bars are the bytes given."""

from __future__ import annotations

import math
import re
import sys
from itertools import combinations
from typing import Any

import pytest

from course_lib.comm.mesh import axis_lines, coordinates
from course_lib.plot import Player, axis_bytes, explore_mesh, mesh_explorer, split_bytes
from course_lib.plot.mesh.axis_bytes import ByteBars, Place
from course_lib.plot.mesh.mesh_controls import PLACES, START, MeshControls, draw, reason
from course_lib.plot.mesh.mesh_explorer import ASIDE, OTHERS, TOP, MeshDrawing
from course_lib.plot.mesh.mesh_floor import Floor
from course_lib.plot.mesh.mesh_groups import MeshGroups, links
from course_lib.plot.player.explorer import Explorer
from course_lib.plot.player.style import BLUE, INK, PAPER, ROLE_STYLE
from course_lib.plot.player.svg import number

MIB = 1 << 20
SMALL = {"pp": 2, "dp": 2, "tp": 2}
SHAPES: list[tuple[dict[str, int], int]] = [
    (SMALL, 4),
    ({"pp": 4, "dp": 4, "tp": 4}, 8),
    ({"pp": 2, "dp": 2, "ep": 2, "cp": 2, "tp": 2}, 4),
    ({"pp": 2, "dp": 3, "ep": 1, "cp": 1, "tp": 3}, 4),  # a node is no multiple of tp
    ({"pp": 4, "dp": 8, "tp": 2}, 1),
    ({"pp": 4, "dp": 8, "tp": 2}, 2),
    ({"dp": 2, "tp": 16}, 16),
    ({"pp": 3, "dp": 7, "tp": 3}, 5),
    ({"pp": 8, "dp": 8, "tp": 8}, 8),
    ({"pp": 2, "dp": 2, "tp": 72}, 72),
    ({"dp": 128, "tp": 4}, 4),
    ({"tp": 2}, 8),
    ({"dp": 1}, 4),
]  # fmt: skip
HEAD, MARKS, WORDS, TOLD, POINTER = range(5)


def cells(svg: str, color: str) -> set[tuple[float, float]]:
    """Corners of the cells of a colour."""
    paths = re.findall(rf'<path fill="{color}"[^>]* d="([^"]*)"', svg)
    found = re.findall(r"M([\d.]+) ([\d.]+)h", "".join(paths))
    assert len(found) == len(set(found))
    return {(float(x), float(y)) for x, y in found}


def corners(floor: Floor, ranks: Any) -> set[tuple[float, float]]:
    """Where ranks are drawn, to a tenth of a pixel."""
    return {tuple(float(number(v)) for v in floor.cell(rank)) for rank in ranks}


def words(svg: str) -> list[str]:
    return re.findall(r">([^<]+)</text>", svg)


def frame_of(player: Player, words: str) -> int:
    """The number of the frame whose heading begins with these words."""
    heads = [frame.parts[HEAD] for frame in player.frames]
    return next(i for i, head in enumerate(heads) if f">{words}" in head)


# --- groups -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("sizes", "per_node"), SHAPES[:8])
def test_groups_and_places_are_those_of_the_mesh(sizes, per_node):
    mesh = MeshGroups(sizes, per_node)
    for count in range(1, len(mesh.sizes) + 1):
        for axes in combinations(mesh.sizes, count):
            assert [list(group) for group in mesh.groups(axes)] == axis_lines(axes, sizes)
    for rank in range(mesh.world):
        place = {axis: i for axis, i in coordinates(rank, sizes).items() if sizes[axis] > 1}
        assert mesh.place(rank) == place
        assert rank == sum(mesh.strides[axis] * index for axis, index in place.items())
        assert rank in mesh.members(mesh.node(rank))
    assert sum(len(mesh.members(node)) for node in range(mesh.nodes)) == mesh.world


def test_names_of_the_ledger_are_axes_longer_than_one():
    mesh = MeshGroups({"pp": 2, "dp": 2, "ep": 1, "cp": 1, "tp": 2}, 8)
    assert mesh.named("dp_ep_cp") == ("dp",) and mesh.named("tp_pp") == ("pp", "tp")
    assert mesh.named("world") == ("pp", "dp", "tp") and mesh.named("cp") == ()
    assert MeshGroups({"dp": 2}, 8).named("dp_ep_cp") == ("dp",)
    with pytest.raises(ValueError, match="asked: the axis 'dq'"):
        mesh.named("dq")


def test_axes_together_are_those_of_gradients():
    every = MeshGroups(dict.fromkeys(("pp", "dp", "ep", "cp", "tp"), 2), 8)
    assert every.combinations() == [("dp", "cp"), ("dp", "ep", "cp")]
    assert MeshGroups({"dp": 2, "cp": 2, "tp": 2}, 8).combinations() == [("dp", "cp")]
    assert MeshGroups({"dp": 2, "ep": 2}, 8).combinations() == [("dp", "ep")]
    assert MeshGroups(SMALL, 8).combinations() == []


# --- bytes --------------------------------------------------------------------------------------
def test_bytes_are_split_by_the_links_that_carry_them():
    assert links(("tp",), (4, 5, 6)) == [(4, 5), (5, 6), (6, 4)]  # a ring
    assert links(("pp",), (0, 4, 8)) == [(0, 4), (4, 8)]  # stage to stage
    assert len(links(("ep",), (0, 1, 2))) == 6  # each to each
    # Two nodes of two: a ring leaves its node with 2 of 4 links, a chain with 1 of 3, and of the
    # three others that a rank sends to, two are away.
    both = {axis: split_bytes({axis: 12.0}, {axis: 4}, 2)[axis] for axis in ("tp", "pp", "ep")}
    assert both == {"tp": (6, 6), "pp": (pytest.approx(8), pytest.approx(4)),
                    "ep": (pytest.approx(4), pytest.approx(8))}  # fmt: skip


def test_names_for_the_same_ranks_are_added_and_axes_are_in_order():
    sent = split_bytes({"dp": 8, "pp": 2, "dp_ep_cp": 4, "world": 8, "tp": 3, "cp": 0}, SMALL, 4)
    assert sent == {"tp": (3, 0), "dp": (12, 0), "pp": (0, 2), "all axes": (6, 2)}
    assert list(sent) == ["tp", "dp", "pp", "all axes"]
    with pytest.raises(ValueError, match="a rank alone sends nothing"):
        split_bytes({"cp": 8}, SMALL, 4)
    with pytest.raises(ValueError, match="asked: -1 bytes on the axis 'tp'"):
        split_bytes({"tp": -1}, SMALL, 4)


def bars_of(svg: str) -> list[tuple[float, str]]:
    """Lengths and colours of the bars, from top to bottom."""
    found = re.findall(r'width="([\d.]+)" height="13" rx="1" fill="(#\w+)"', svg)
    return [(float(wide), color) for wide, color in found]


def test_bars_are_as_long_as_their_bytes():
    picture = axis_bytes({"tp": (6 * MIB, 0), "dp": (3 * MIB, 1.5 * MIB)})
    (tp, inside), (dp, _), (away, between) = bars_of(picture.svg)
    assert tp / dp == pytest.approx(2, rel=1e-3) and dp / away == pytest.approx(2, rel=1e-3)
    assert inside != between and "logarithmic" not in picture.svg
    assert picture.alt == (
        "Bytes that a rank sends in a step, by axis: tp 6 MiB inside the node, 0 B between nodes; "
        "dp 3 MiB inside the node, 1.5 MiB between nodes."
    )
    assert {"6 MiB", "3 MiB", "1.5 MiB", "0 B"} <= set(words(picture.svg))


def test_a_logarithmic_scale_is_named_and_right():
    sent = {"tp": (1024 * MIB, 0), "dp": (32 * MIB, MIB), "pp": (0, 0)}
    picture = axis_bytes(sent)
    (tp, _), (dp, _), (away, _) = bars_of(picture.svg)
    assert (tp - dp) / (dp - away) == pytest.approx(1, rel=1e-2)  # both are a factor of 32
    bars = ByteBars(sent, Place(0, 0, 700, 50))
    ticks = bars.ticks()
    factor = ticks[1] / ticks[0]
    assert all(b / a == factor for a, b in zip(ticks, ticks[1:], strict=False))
    assert f"logarithmic: × {factor:,.0f} per line" in bars.draw()
    gaps = [bars.length(b) - bars.length(a) for a, b in zip(ticks, ticks[1:], strict=False)]
    assert min(gaps) >= 56 and max(map(bars.length, ticks)) <= bars.place.room


def test_no_bytes_are_refused():
    for nothing in ({}, {"tp": (0, 0)}, {"tp": (-1, 2)}):
        with pytest.raises(ValueError, match="bytes by axis"):
            axis_bytes(nothing)


# --- where things are ---------------------------------------------------------------------------
@pytest.mark.parametrize(("sizes", "per_node"), SHAPES)
def test_ranks_are_in_their_node_and_nothing_overlaps(sizes, per_node):
    mesh = MeshGroups(sizes, per_node)
    floor, drawing = Floor(mesh, TOP), MeshDrawing(mesh, 0, {})
    wide, tall = floor.side
    nodes = [floor.corner(node) for node in range(mesh.nodes)]
    for (x, y), (u, v) in combinations(nodes, 2):
        assert abs(x - u) >= floor.wide + 3 or abs(y - v) >= floor.tall + 3
    for node, (x, y) in enumerate(nodes):
        assert x >= 16 and x + floor.wide <= floor.right + 0.01 <= drawing.left - 20
        assert y >= TOP and y + floor.tall <= floor.foot + 0.01 < drawing.size[1]
        places = [floor.cell(rank) for rank in mesh.members(node)]
        for left, top in places:
            assert x < left and left + wide < x + floor.wide
            assert y + floor.head <= top and top + tall <= y + floor.tall
        for (a, b), (c, d) in combinations(places, 2):
            assert abs(a - c) >= wide + 0.9 or abs(b - d) >= tall + 0.9


@pytest.mark.parametrize(("sizes", "per_node"), SHAPES)
def test_words_fit_into_their_cells_and_the_picture(sizes, per_node):
    """By widths of DejaVu Sans, the widest of the fonts that a page may have."""
    player = mesh_explorer(sizes, per_node)
    floor = Floor(MeshGroups(sizes, per_node), TOP)
    wide = floor.side[0]
    for rank in range(floor.mesh.world if floor.worded else 0):
        place = floor.mesh.place(rank).values()
        assert 11 * (0.64 * len("".join(map(str, place))) + 0.32 * (len(place) - 1)) <= wide
        tag = 3 + 10 * 0.64 * (1 + len(str(floor.mesh.world // 2 - 1)))
        half = 13.5 * 0.7 * len(str(rank)) / 2
        assert tag <= wide / 2 + ASIDE - half and wide / 2 + ASIDE + half <= wide
    left = floor.right + 24
    for frame in player.frames:
        for x, said in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)<', frame.parts[TOLD]):
            assert left + float(x) + 0.55 * 12 * len(said) <= 800
        lines = [float(y) for y in re.findall(r' y="([\d.]+)"', frame.parts[TOLD])]
        assert 105 + max(lines) <= player.size[1] - 10


# --- frames -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("sizes", "per_node"), SHAPES)
def test_a_frame_lights_the_group_of_the_rank_and_its_nodes(sizes, per_node):
    mesh = MeshGroups(sizes, per_node)
    rank = mesh.world * 2 // 3
    player, floor = mesh_explorer(sizes, per_node, rank=rank), Floor(mesh, TOP)
    axes = [(axis,) for axis in reversed(mesh.sizes)] + mesh.combinations()
    assert len(player.frames) == 1 + len(axes)
    assert cells(player.frames[0].parts[MARKS], BLUE) == corners(floor, [rank])
    for those, frame in zip(axes, player.frames[1:], strict=True):
        groups = axis_lines(those, sizes)
        mine = next(group for group in groups if rank in group)
        marks = frame.parts[MARKS]
        assert cells(marks, BLUE) == corners(floor, mine)
        rest = [group for group in groups if group is not mine]
        for shade, color in enumerate(OTHERS):
            members = [r for group in rest[shade :: len(OTHERS)] for r in group]
            assert cells(marks, color) == corners(floor, members)
        outlined = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*rx="6" class="ink-edge"', marks)
        nodes = {r // per_node for r in mine}
        assert {(float(x), float(y)) for x, y in outlined} == {
            tuple(float(number(v)) for v in floor.corner(node)) for node in nodes
        }


def test_cells_say_group_rank_and_place():
    frame = mesh_explorer(SMALL, 4, rank=5).frames[2]  # dp: 0 2, 1 3, 4 6, 5 7
    white, ink = frame.parts[WORDS].split('<g class="ink" text-anchor', 1)
    assert words(white) == ["5", "7", "1·0·1", "1·1·1", "g3", "g3"]
    assert words(ink) == [*"012346", "0·0·0", "0·0·1", "0·1·0", "0·1·1", "1·0·0", "1·1·0",
                          "g0", "g1", "g0", "g1", "g2", "g2"]  # fmt: skip


def test_over_64_ranks_nodes_say_what_their_ranks_share():
    player = mesh_explorer({"pp": 8, "dp": 8, "tp": 8}, 8)
    names = words(player.background)
    assert names[names.index("node 12") + 1] == "1·4·∗" and "node 63" in names
    assert all(frame.parts[WORDS] == "" for frame in player.frames)
    halves = words(mesh_explorer({"dp": 32, "tp": 4}, 2).background)
    assert halves[halves.index("node 3") + 1] == "1·∗"  # ranks 6 and 7, of dp 1


def test_captions_say_who_how_far_and_where():
    player = mesh_explorer({"pp": 4, "dp": 4, "tp": 4}, 8, {"dp_ep_cp": 8 * MIB}, rank=21)
    captions = [frame.caption for frame in player.frames]
    assert captions == [
        "64 ranks on 8 nodes: pp 4 × dp 4 × tp 4. The last axis runs fastest: rank = 16·pp + 4·dp "
        "+ tp. Rank 21 is pp 1, dp 1, tp 1: 21 = 16·1 + 4·1 + 1.",
        "Axis tp, tensor parallel: rank 21 is in a group with the ranks 20, 21, 22, 23; stride 1; "
        "all in node 2. Groups: 16 of 4, each inside a node. This group sends sums of activations, "
        "in every block.",
        "Axis dp, data parallel: rank 21 is in a group with the ranks 17, 21, 25, 29; stride 4; on "
        "2 nodes. Groups: 16 of 4, none inside a node. This group sends gradients of all "
        "parameters. In a step a rank sends, on average, 4 MiB inside its node and 4 MiB between "
        "nodes, counted as on a ring in the order of ranks.",
        "Axis pp, pipeline: rank 21 is in a group with the ranks 5, 21, 37, 53; stride 16; on 4 "
        "nodes, one rank in each. Groups: 16 of 4, none inside a node. This group sends "
        "activations to the next stage and their gradients back, for every micro-batch.",
    ]
    assert all(caption in player.alt for caption in captions)
    assert player.alt.endswith("on average: dp 4 MiB inside the node, 4 MiB between nodes.")
    assert player.still == 1


def test_gradients_go_over_the_axes_that_the_step_averages_over():
    every = dict.fromkeys(("pp", "dp", "ep", "cp", "tp"), 2)

    def sends(sizes: dict[str, int], heading: str) -> str:
        player = mesh_explorer(sizes, 8)
        caption = player.frames[frame_of(player, heading)].caption
        return caption.partition("This group sends ")[2]

    assert sends(every, "Groups of dp:") == "gradients, as part of dp×ep×cp."
    assert sends(every, "Groups of dp×cp together") == "gradients of experts."
    assert sends(every, "Groups of dp×ep×cp together") == (
        "gradients of all parameters but the experts'."
    )
    assert sends(every, "Groups of ep") == "tokens to their experts and back, in every MoE block."
    assert sends({"dp": 2, "ep": 2, "tp": 2}, "Groups of dp:") == "gradients of experts."
    assert sends({"cp": 2, "tp": 2}, "Groups of cp") == (
        "keys and values round the ring, in every block; gradients of all parameters."
    )
    strides = mesh_explorer(every, 8, rank=3).frames[6]
    assert "the ranks 1, 3, 9, 11; stride 2 on cp, 8 on dp; on 2 nodes." in strides.caption
    assert "2 on cp, 8 on dp" in words(strides.parts[TOLD])


def test_axes_with_bytes_have_a_frame_and_their_row_is_outlined():
    sent = {"tp": 24 * MIB, "dp": 6 * MIB, "pp": 2 * MIB, "pp_dp": 8, "world": 8}
    player = mesh_explorer(SMALL, 4, sent)
    heads = [words(frame.parts[HEAD])[0] for frame in player.frames[1:]]
    assert heads == ["Groups of tp: tensor parallel", "Groups of dp: data parallel",
                     "Groups of pp: pipeline", "Groups of pp×dp together",
                     "Groups of all axes together"]  # fmt: skip
    rows = [float(re.search(r' y="([\d.]+)"', frame.parts[POINTER])[1])
            for frame in player.frames[1:]]  # fmt: skip
    names = re.findall(r'y="([\d.]+)"[^>]*text-anchor="end">([^<]+)<', player.background)
    assert [name for _, name in names] == ["tp", "dp", "pp", "pp×dp", "all axes"]
    for row, (y, _) in zip(rows, names, strict=True):
        assert row < float(y) < row + 36
    assert player.frames[0].parts[POINTER] == ""
    assert max(rows) + 36 < player.size[1]
    assert "Groups: 1 of 8." in player.frames[-1].caption


def test_names_and_numbers_of_bars_fit_beside_them():
    every, node = dict.fromkeys(("pp", "dp", "ep", "cp", "tp"), 2), 8
    drawing = MeshDrawing(MeshGroups(every, node), 0, {("dp", "ep", "cp"): (24 * MIB, 3)})
    for bars in (drawing.bars, ByteBars({"a": (1, 1)}, Place(16, 0, 300, 60))):
        assert bars is not None
        place, drawn = bars.place, bars.draw()
        for x, name in re.findall(r'x="([\d.]+)"[^>]*"end">([^<]+)<', drawn):
            assert float(x) - 12 * 0.66 * len(name) >= place.left
        for x, said in re.findall(r'x="([\d.]+)"[^>]*"start">([^<]+)<', drawn):
            assert float(x) + 11 * 0.62 * len(said) <= place.left + place.width + 8


def test_a_mesh_across_nodes_says_how_many_groups_are_inside():
    player = mesh_explorer({"pp": 2, "dp": 3, "tp": 3}, 4, rank=4)
    assert "the ranks 3, 4, 5; stride 1; on 2 nodes. Groups: 6 of 3, 3 inside a node." in (
        player.frames[1].caption
    )
    assert "the ranks 0–71;" in mesh_explorer({"dp": 2, "tp": 72}, 72).frames[1].caption


@pytest.mark.parametrize(("sizes", "per_node"), SHAPES)
def test_players_are_small_and_the_same_each_time(sizes, per_node):
    html = mesh_explorer(sizes, per_node, rank=0)._repr_html_()
    assert html == mesh_explorer(sizes, per_node)._repr_html_()
    assert len(html) < 150_000 and ' id="' not in html


def test_words_can_be_read_on_faint_colours_in_both_themes():
    for paper, ink in ((PAPER, INK), ("#111111", "#ffffff")):
        for color in OTHERS:
            assert contrast(blend(color, paper, 0.4), channels(ink)) >= 4.5
    assert contrast(channels(BLUE), channels("#ffffff")) >= 4.5


def channels(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def blend(color: str, under: str, opacity: float) -> list[float]:
    pairs = zip(channels(color), channels(under), strict=True)
    return [opacity * over + (1 - opacity) * below for over, below in pairs]


def contrast(first: list[float], second: list[float]) -> float:
    """WCAG's contrast ratio of two colours."""
    lights = []
    for color in (first, second):
        parts = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in color]
        lights.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)
    return max(lights) / min(lights)


# --- refusals -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sizes", "per_node", "rank", "found"),
    [
        ({"dp": 2, "tp": 2}, 8, 4, "found: a mesh of dp 2 × tp 2"),
        ({"dp": 2, "tp": 2}, 8, -1, "its ranks are 0 to 3"),
        ({"dp": 2, "tp": 0}, 8, 0, "found: a number below 1: 0"),
        ({"dp": 2}, 0, 0, "on nodes of 0"),
        ({"dp": 128, "tp": 8}, 8, 0, "asked: a picture of 1024 ranks on 128 nodes"),
        ({"dp": 512}, 2, 0, "found: room for 512 ranks on 128 nodes"),
    ],
)
def test_impossible_meshes_are_refused(sizes, per_node, rank, found):
    with pytest.raises(ValueError, match=found) as error:
        mesh_explorer(sizes, per_node, rank=rank)
    assert len(str(error.value).splitlines()) == 3


# --- sliders ------------------------------------------------------------------------------------
def test_moving_a_slider_draws_the_new_mesh():
    controls = MeshControls()
    sliders, view = controls.sliders, controls.view
    assert draw(START)[0].svg.replace(ROLE_STYLE, "") in view.value
    assert "the ranks 0, 1, 2, 3; stride 1; all in node 0." in view.value
    sliders["innermost"].value = "dp"
    assert "the ranks 0, 2, 4, 6; stride 2; all in node 0." in view.value
    sliders["per_node"].value = 4
    assert "on 2 nodes. Groups: 4 of 4, none inside a node." in view.value
    assert sliders["rank"].max == 15
    sliders["rank"].value = 15
    assert "rank 15 is in a group with the ranks 9, 11, 13, 15;" in view.value
    sliders["tp"].value = 2
    assert sliders["rank"].max == sliders["rank"].value == 7
    assert "rank 7 is in a group with the ranks 5, 7;" in view.value
    sliders["shown"].value = PLACES
    assert "Rank 7 is pp 1, tp 1, dp 1: 7 = 4·1 + 2·1 + 1." in view.value
    sliders["shown"].value = "cp"
    assert "cp has size 1: no groups to show. 8 ranks" in view.value


def test_too_large_a_mesh_is_one_sentence():
    controls = MeshControls()
    for axis in ("pp", "dp", "tp"):
        controls.sliders[axis].value = 16
    assert "<svg" not in controls.view.value
    assert (
        "This cannot be a picture of 4096 ranks on 512 nodes: there is room for 512 ranks on 128 "
        "nodes, as every rank must be large enough to be seen."
    ) in controls.view.value
    controls.sliders["pp"].value = 1
    controls.sliders["tp"].value = 8
    assert "128 ranks on 16 nodes" not in controls.view.value and "<svg" in controls.view.value


def test_every_setting_is_drawn_or_refused():
    for sizes in ((1, 1, 1, 1, 1), (16, 16, 1, 1, 2), (3, 3, 2, 2, 3), (1, 2, 16, 1, 16)):
        named = dict(zip(("pp", "dp", "ep", "cp", "tp"), sizes, strict=True))
        for per_node in (1, 2, 16):
            for shown in (PLACES, "tp", "dp_ep_cp", "dp_cp"):
                at = START | named | {"per_node": per_node, "shown": shown, "rank": 9}
                try:
                    picture, _ = draw(at)
                except ValueError as error:
                    world = math.prod(sizes)
                    assert world > 512 or world / per_node > 128
                    assert "\n" not in reason(error)
                else:
                    assert len(picture.svg) < 80_000


@pytest.mark.parametrize("live", ["0", "1"])
def test_the_cell_is_the_same_with_and_without_sliders_but_for_the_view(monkeypatch, live):
    shown = []
    module = sys.modules[Explorer.__module__]
    monkeypatch.setattr(module, "display", lambda data, raw: shown.append(data))
    monkeypatch.setenv("COURSE_LIVE", live)
    explore_mesh()._ipython_display_()
    assert shown[0] == explore_mesh().still()
    assert shown[0]["text/plain"] == "MeshExplorer()"
    assert "stride 1; all in node 0" in shown[0]["text/html"]
    assert [list(more) for more in shown[1:]] == (
        [["application/vnd.jupyter.widget-view+json"]] if live == "1" else []
    )
