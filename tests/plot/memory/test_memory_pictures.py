"""Memory over frames and over time, and loss curves: lengths and words are those of the data."""

from __future__ import annotations

import re

import pytest

from course_lib.plot import loss_curves, memory_over_time, memory_player
from course_lib.plot.memory.memory_player import TALL
from course_lib.plot.memory.memory_time import held_over_time, thinned
from course_lib.plot.player.style import LINE, MEMORY_COLORS, VERMILLION
from course_lib.trace import Ledger, Timeline

PSI = 7_500_000_000
NAMES = ("parameters", "gradients", "optimizer state")


def stages(size: int) -> dict[str, dict[str, float]]:
    """Bytes of the ZeRO paper's figure 1: 2, 2 and 12 bytes a parameter, sharded more and more."""
    return {
        name: {c: full * PSI / (size if shared > i else 1)
               for i, (c, full) in enumerate(zip(reversed(NAMES), (12, 2, 2), strict=True))}
        for shared, name in enumerate(("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"))
    }  # fmt: skip


def heights(part: str) -> dict[str, float]:
    """Memory class to the height of its box in a bar."""
    found = re.findall(r'height="([\d.]+)" rx="1.5" fill="(#\w+)"', part)
    names = {color: name for name, color in MEMORY_COLORS.items()}
    return {names[color]: float(tall) for tall, color in found}


def test_bars_are_on_one_scale_over_all_frames():
    player = memory_player({f"N = {n}": stages(n) for n in (1, 2, 64)}, budget=80e9, decimal=True)
    ddp, _, _, zero3 = (heights(part) for part in player.frames[1].parts[1:])
    assert set(ddp) == set(NAMES)
    pixel = sum(heights(player.frames[0].parts[1]).values()) / (16 * PSI)  # all frames share it
    for name, each in (("parameters", 2), ("gradients", 2), ("optimizer state", 12)):
        assert ddp[name] == pytest.approx(each * PSI * pixel, abs=1.5)
        assert zero3[name] == pytest.approx(each * PSI / 2 * pixel, abs=1.5)
    assert player.frames[0].parts[1] == player.frames[2].parts[1]  # DDP does not depend on N
    assert sum(ddp.values()) < TALL


def test_sums_and_the_budget_are_printed():
    player = memory_player({"N = 64": stages(64)}, budget=80e9, decimal=True)
    assert player.frames[0].caption == (
        "N = 64: DDP 120 GB, ZeRO-1 31.4 GB, ZeRO-2 16.6 GB, ZeRO-3 1.88 GB. Over the budget: DDP."
    )
    sums = (">120 GB<", ">31.4 GB<", ">16.6 GB<", ">1.88 GB<")
    assert all(s in part for s, part in zip(sums, player.frames[0].parts[1:], strict=True))
    assert VERMILLION in player.background and "budget 80 GB<" in player.background
    assert 'class="ink-edge"' in player.frames[0].parts[1]
    assert 'class="ink-edge"' not in player.frames[0].parts[2]
    assert "budget 80 GB (74.5 GiB)" in memory_player({"1": {"parameters": 1}}, 80e9).background


def test_a_single_frame_is_a_picture_without_controls():
    one, two = (
        memory_player({f"N = {n}": stages(n) for n in sizes}, decimal=True)
        for sizes in ((64,), (1, 64))
    )
    assert "cp-player" in two._repr_html_()
    shown = one._repr_html_()
    assert "cp-picture" in shown and "cp-player" not in shown
    assert one.frames[0].caption in shown and one.alt in shown


def test_no_budget_no_line():
    assert VERMILLION not in memory_player({"1": {"parameters": 1}}).background


def test_a_single_bar_and_bars_of_ranks():
    player = memory_player({"k = 1": {"activations": 4096}, "k = 2": {"activations": 2048}})
    assert [len(frame.parts) for frame in player.frames] == [2, 2]
    assert player.frames[1].caption == "k = 2: 2 KiB in all, activations 2 KiB."
    player = memory_player(
        {"a": {0: {"gradients": 5}, 1: {"gradients": 7}}, "b": {1: {"gradients": 1}}}
    )
    assert player.frames[0].caption == "a: rank 0 5 B, rank 1 7 B."
    assert player.frames[1].parts[1] == ""  # rank 0 has no bar here
    assert "By class, b: rank 1 gradients 1 B." in player.alt


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="known classes: parameters"):
        memory_player({"a": {"weights": 1}})
    for empty in ({}, {"a": {}}, {"a": {"parameters": 0}}):
        with pytest.raises(ValueError, match="an empty chart"):
            memory_player(empty)


def test_sixty_frames_of_bars_are_small():
    frames = {f"N = {n}": stages(n) for n in range(1, 61)}
    assert len(memory_player(frames, 80e9)._repr_html_()) < 300_000


# --- over time ---------------------------------------------------------------------------
def test_what_is_held_is_what_the_samples_say(holds):
    history = held_over_time(holds.rank(0))
    assert [moment.total for moment in history] == [2048, 2560, 5120, 6144, 3072, 3072]
    assert [round(moment.at * 1e3) for moment in history] == [0, 2, 3, 5, 6, 8]
    alt = memory_over_time(holds).alt
    assert alt.startswith("Memory of rank 0 over 8 ms, stacked by class. Peak 6 KiB at 5 ms: ")
    assert "parameters 2 KiB, gradients 1 KiB, activations 3 KiB. At the end 3 KiB." in alt


def test_a_class_without_samples_was_held_all_the_time(holds):
    ledger = holds.rank(0)
    ledger.held["optimizer state"] = 1 << 20
    assert all(moment.counts["optimizer state"] == 1 << 20 for moment in held_over_time(ledger))


def test_areas_are_as_high_as_the_bytes(holds, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "course_lib.plot.memory.memory_time.as_picture",
        lambda figure, *_, **__: drawn.append(figure),
    )
    memory_over_time(holds)
    axes = drawn[0].axes[0]
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in axes.collections]
    assert tops == [2048, 3072, 6144]  # each on top of those below
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[5.0, 6144]]]


def test_many_samples_make_a_small_picture_that_keeps_the_peak():
    ledger = Ledger(0)
    for number in range(20_000):
        ledger.samples.append(
            (number * 1e-6, "activations", 1000 + number % 7 + 50 * (number == 9))
        )
    history = held_over_time(ledger)
    shown = thinned(history, history[-1].at / 800)
    assert len(shown) <= 1700 and max(m.total for m in shown) == 1052
    assert shown[-1].at == history[-1].at
    assert len(memory_over_time(Timeline([ledger])).svg) < 250_000


def test_memory_over_time_is_marked_as_measured(holds):
    assert "<img data-measured " in memory_over_time(holds)._repr_html_()


# --- losses ------------------------------------------------------------------------------
def test_the_reference_is_wide_and_the_others_thin_on_top(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "course_lib.plot.data_parallel.losses.as_picture",
        lambda figure, *_, **__: drawn.append(figure),
    )
    curves = {"a": [3.0, 2.0], "one": [3.0, 1.0], "b": [3.0, 1.5]}
    loss_curves(curves, "one")
    lines = drawn[0].axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [curves[n] for n in ("one", "a", "b")]
    assert lines[0].get_linewidth() > 3 * lines[1].get_linewidth()
    assert lines[0].get_color() == LINE and lines[0].get_linestyle() == "-"
    assert {line.get_linestyle() for line in lines[1:]} == {"--"}
    assert [line.get_label() for line in lines] == [
        "one (reference)", "a (off by 1 at most)", "b (off by 0.5 at most)"]  # fmt: skip


def test_largest_differences_are_in_the_description():
    alt = loss_curves({"one": [2.0, 1.0], "DDP": [2.0, 1.0], "FSDP": [2.25, 1.0]}).alt
    assert "DDP: from 2 to 1, largest difference from the reference 0." in alt
    assert "FSDP: from 2.25 to 1, largest difference from the reference 0.25." in alt
    short = loss_curves({"one": [2.0, 1.0, 0.0], "DDP": [2.0, 1.5]}).alt
    assert "DDP: from 2 to 1.5 in 2 steps, largest difference from the reference 0.5." in short
    nan = loss_curves({"one": [2.0, 1.0], "DDP": [2.0, float("nan")]}).alt
    assert "largest difference from the reference nan" in nan


def test_curves_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="an empty chart"):
        loss_curves({"one": [1.0]})
    with pytest.raises(ValueError, match="losses with those of 'two'"):
        loss_curves({"one": [1.0], "DDP": [1.0]}, "two")
    with pytest.raises(ValueError, match="no other goes on beyond it"):
        loss_curves({"one": [1.0], "DDP": [1.0, 2.0]})
