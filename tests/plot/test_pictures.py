"""What all pictures have in common, and that the numbers in them are those of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import matplotlib as mpl
import pytest
from matplotlib.font_manager import FontProperties, findfont

from course_lib.comm.mesh import axis_lines
from course_lib.plot import (
    Frame,
    Player,
    alpha_beta_chart,
    bucket_steps,
    byte_bars,
    collective_steps,
    format_bytes,
    format_time,
    memory_bars,
    memory_over_time,
    mesh_axes,
    predict,
    rank_color,
    residency_steps,
    scaling_chart,
    text_on,
    timeline_lanes,
    topology,
)
from course_lib.plot.mesh.topology import lines
from course_lib.plot.player.figure import as_picture, new_figure, style
from course_lib.trace import Ledger, Refusal, Timeline

NAMES = ["steps", "bytes", "memory", "lanes", "fit", "groups", "mesh", "buckets", "residency",
         "held", "stages", "losses", "split", "schedule", "schedules", "ring", "recompute",
         "compared", "checkpoint", "dispatch", "numbers", "gradients", "explorer", "squares",
         "axes"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_an_image_with_a_description_and_needs_no_network(pictures, name):
    html = pictures[name]._repr_html_()
    image = re.search(r'alt="([^"]+)" style="[^"]*" src="(data:image/svg\+xml,[^"]+)">', html)
    assert image and len(image[1]) > 40
    svg = unquote(image[2])
    assert 'role="img"' in svg and 'aria-label="' in svg
    for text in (unquote(html), svg):
        hosts = set(re.findall(r"https?://([^/\s\"']+)", text))
        assert hosts <= {"www.w3.org"}  # the names of SVG and XLink, which nobody loads
    assert "<script src" not in html and "@import" not in html


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_the_same_each_time(pictures, request, name):
    once = pictures[name]._repr_html_()
    assert once == pictures[name]._repr_html_()
    assert "object at 0x" not in repr(pictures[name]) and len(repr(pictures[name])) < 80


def test_a_chart_is_the_same_whatever_the_users_matplotlib_is_set_to(ring_record):
    """Its settings, and which fonts the system has: those of one name differ in their outlines."""
    drawn = byte_bars(ring_record)._repr_html_()
    own = {
        "font.family": "monospace",
        "axes.grid": True,
        "axes.labelsize": 20,
        "text.hinting": "none",
    }
    with mpl.rc_context(own):
        assert byte_bars(ring_record)._repr_html_() == drawn
    with style():
        files = {findfont(FontProperties(weight=weight)) for weight in ("normal", "bold")}
    own_fonts = Path(mpl.get_data_path()).resolve()  # a .venv may be a link
    assert {Path(file).is_relative_to(own_fonts) for file in files} == {True}
    assert {Path(file).name for file in files} == {"DejaVuSans.ttf", "DejaVuSans-Bold.ttf"}


def test_charts_drawn_twice_are_equal(ring_record):
    assert byte_bars(ring_record).svg == byte_bars(ring_record).svg
    assert timeline_lanes(ring_record).svg == timeline_lanes(ring_record).svg


@pytest.mark.parametrize("name", NAMES)
def test_no_transparent_background(pictures, name):
    picture = pictures[name]
    svg = picture.frame_svg(0) if isinstance(picture, Player) else picture.svg
    assert 'class="paper"' in svg or "fill: var(--cp-paper)" in svg


# --- numbers ---------------------------------------------------------------------------
def test_bars_are_as_long_as_the_bytes_recorded(ring_record, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "course_lib.plot.memory.bars.as_picture", lambda figure, *_: drawn.append(figure)
    )
    ring_record.rank(2).events[0].sent = 7 << 20
    byte_bars(ring_record)
    bars = drawn[0].axes[0].patches
    assert [bar.get_width() for bar in bars] == ring_record.sent()
    assert [bar.get_facecolor() for bar in bars] == [rgb(rank_color(rank)) for rank in range(4)]
    marks = [line.get_xdata()[0] for line in drawn[0].axes[0].lines]
    assert marks == ring_record.rows()[0]["formula_sent"]


def test_bytes_are_in_the_description(pictures):
    assert "rank 3 sent 6 MiB, by the formula 6 MiB" in pictures["bytes"].alt
    assert "rank 3: parameters 3 MiB, gradients 2 MiB" in pictures["memory"].alt
    assert "1/β = 2 GB/s" in pictures["fit"].alt
    assert "1.2 ms in all, 800 µs of it beside no work (backward)" in pictures["lanes"].alt


def test_points_without_a_model_are_joined(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "course_lib.plot.collectives.fit.as_picture", lambda figure, *_, **__: drawn.append(figure)
    )
    times = {"ring": [2e-5, 4e-5, 2e-3], "tree": [1e-5, 3e-5, 4e-3]}
    alpha_beta_chart([1024, 65536, 1 << 22], times, {"tree": (1e-5, 1e-9)})
    lines = drawn[0].axes[0].lines  # the ring's points and their line; the tree's points; its model
    assert [line.get_linestyle() for line in lines] == ["-", "None", "-"]
    assert [len(line.get_xdata()) for line in lines] == [3, 3, 61]


def test_the_timeline_explains_only_the_bars_that_it_has(ring_record):
    ledger = Ledger(0)
    event = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=8)
    event.begin, event.end = 0.0, 1.0
    assert "messages (thin" in timeline_lanes(ring_record).svg
    assert "messages (thin" not in timeline_lanes(Timeline([ledger])).svg


def test_nothing_recorded_is_refused():
    empty = Timeline([Ledger(0)])
    for draw in (byte_bars, memory_bars, timeline_lanes, bucket_steps, residency_steps,
                 memory_over_time):  # fmt: skip
        with pytest.raises(ValueError, match="an empty chart"):
            draw(empty)
    for nothing in (
        lambda: alpha_beta_chart([], {}),
        lambda: scaling_chart({"a": {1: 1.0}}, {}, "speed"),
        lambda: topology([], 8),
    ):
        with pytest.raises(Refusal):
            nothing()


def test_many_short_events_make_a_small_picture():
    ledger = Ledger(0)
    for number in range(3000):
        event = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=8)
        event.begin, event.end = number * 1e-4, number * 1e-4 + 5e-5
    assert len(timeline_lanes(Timeline([ledger])).svg) < 200_000


# --- steppers ---------------------------------------------------------------------------
def test_the_stepper_tells_phases_bytes_and_the_verdict(pictures):
    captions = [frame.caption for frame in pictures["steps"].frames]
    assert len(captions) == 8
    assert all("reduce-scatter" in caption and "adds" in caption for caption in captions[1:4])
    assert all("all-gather" in caption and "keeps" in caption for caption in captions[4:7])
    assert captions[-1].startswith("Done: all 16 chunks are complete. Sent by each rank: 6 MiB")


def test_the_last_frame_shows_16_full_cells(pictures):
    film = pictures["steps"].film()
    last = [film["table"][part] for part in film["frames"][-1]]
    cells = [part for part in last if part.count("</text>") == 4]
    assert len(cells) == 16 and all("Q" in cell for cell in cells)  # Q: the bend of the tick
    assert "marker" not in film["picture"] and ' id="' not in film["picture"]


def test_a_message_that_never_arrived_is_drawn_and_said(record, ring):
    player = collective_steps(record(4, ring(4), lost=[23]))
    assert "never received" in "".join(player.frames[6].parts)
    assert "was never received" in player.frames[6].caption
    assert player.frames[-1].caption.startswith("Wrong: 1 of 16 chunks")


def test_a_stepper_stays_small(record, ring):
    assert len(collective_steps(record(4, ring(4)))._repr_html_()) < 80_000
    assert len(collective_steps(record(8, ring(8)))._repr_html_()) < 300_000


def test_a_player_needs_one_part_a_place():
    with pytest.raises(ValueError, match="found: parts: \\[1\\]"):
        Player((10, 10), "", [(0, 0), (1, 1)], [Frame(("",), "")], title="t", alt="a")


# --- meshes ---------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 3}, {"pp": 2, "dp": 2, "cp": 1, "tp": 2}])
def test_lines_are_those_of_the_mesh(sizes):
    for axis in sizes:
        assert lines(axis, sizes) == axis_lines(axis, sizes)


def test_links_inside_a_node_are_thicker():
    svg = topology([[0, 1], [2, 3]], 2).svg
    across = topology([[0, 2], [1, 3]], 2).svg
    assert svg.count('stroke-width="5"') == across.count('stroke-width="2"') == 2
    assert "all inside a node" in topology([[0, 1], [2, 3]], 2).alt
    assert "all across nodes" in topology([[0, 2], [1, 3]], 2).alt
    assert [frame.caption[:7] for frame in mesh_axes({"dp": 2, "tp": 2}, 2).frames] == [
        "Axis dp", "Axis tp"]  # fmt: skip
    with pytest.raises(ValueError, match="exactly one group"):
        topology([[0, 1], [1, 2]], 2)


# --- words and colours ---------------------------------------------------------------------------
def test_bytes_and_times_have_three_digits_and_iec_units():
    assert [format_bytes(n) for n in (0, 768, 1023, 1024, 1536, 3 << 19, 10 << 30)] == [
        "0 B", "768 B", "1023 B", "1 KiB", "1.5 KiB", "1.5 MiB", "10 GiB"]  # fmt: skip
    assert [format_bytes(n, decimal=True) for n in (999, 1e3, 31_406_250_000, 999.7e9)] == [
        "999 B", "1 kB", "31.4 GB", "1000 GB"]  # fmt: skip
    assert [format_time(t) for t in (0, 85e-6, 1.234e-3, 0.5, 3, 75.5)] == [
        "0 µs", "85 µs", "1.23 ms", "500 ms", "3 s", "75.5 s"]  # fmt: skip


def test_text_can_be_read_on_every_rank_colour():
    for rank in range(8):
        assert contrast(rank_color(rank), text_on(rank_color(rank))) >= 4.5


def test_a_prediction_can_be_read_without_scripts():
    html = predict("How many <b>?", 1.5, "MiB", why="3/4 & 3/4")._repr_html_()
    still, _, script = html.partition("<script>")
    assert "How many &lt;b&gt;?" in still and "<details>" in still
    assert "1.5 MiB" in still and "3/4 &amp; 3/4" in still
    assert json.loads(re.search(r"live\(root, (\{.*\})\)", script)[1])["answer"] == 1.5


def test_white_text_on_blue_is_not_taken_for_paper():
    with style():
        figure, axes = new_figure(1, 1)
        axes.text(0, 0, "x", color="#fff")
        assert "fill: #ffffff" in as_picture(figure, "t", "a").svg


def rgb(color: str) -> tuple[float, ...]:
    """The colour as matplotlib gives it."""
    return (*(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0)


def contrast(first: str, second: str) -> float:
    """WCAG's contrast ratio of two colours."""

    def light(color: str) -> float:
        full = color if len(color) == 7 else "#" + "".join(2 * c for c in color[1:])
        parts = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in rgb(full)[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05

    return max(light(first), light(second)) / min(light(first), light(second))
