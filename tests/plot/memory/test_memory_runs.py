"""Several runs' activations in one chart: curves, peaks and words are those of the ledgers."""

from __future__ import annotations

import pytest

from course_lib.plot import memory_compared
from course_lib.plot.memory.memory_runs import APART, apart
from course_lib.trace import Ledger, Timeline

KEPT = ("hold parameters 4096", "hold activations 1024", "hold activations 3072",
        "hold gradients 512", "hold activations 4096", "hold activations 0", "begin step",
        "end step")  # fmt: skip
AGAIN = ("hold activations 512", "hold activations 1024", "mark", "hold activations 2048", "mark",
         "mark", "hold activations 1024", "mark", "hold activations 0")  # fmt: skip


@pytest.fixture
def runs(ledger_of):
    """Two runs of 4 and 8 ms; one is a timeline, the other a ledger."""
    return {"keep all": Timeline([ledger_of(KEPT)]), "recompute": ledger_of(AGAIN)}


def test_peaks_are_in_the_description_and_times_are_not(runs):
    assert memory_compared(runs).alt == (
        "Activations held by rank 0 in one step, from the first that is held to the last that is "
        "freed, each run over its own length. "
        "keep all: peak 4 KiB after 75 %. "
        "recompute: peak 2 KiB after 38 % (50 % of the memory of keep all)."
    )


def test_curves_are_those_of_the_ledgers(runs, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "course_lib.plot.memory.memory_runs.as_picture",
        lambda figure, *_, **__: drawn.append(figure),
    )
    memory_compared(runs)
    axes = drawn[0].axes[0]
    steps = [patch.get_data() for patch in axes.patches]
    first, second = ([round(x, 6) for x in step.edges] for step in steps)
    assert [list(step.values) for step in steps] == [[1024, 3072, 4096], [512, 1024, 2048, 1024]]
    assert first == [0, 25, 75, 100] and second == [0, 12.5, 37.5, 75, 100]
    dots = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert [[(round(x, 6), y) for x, y in dot] for dot in dots] == [[(37.5, 2048)], [(75, 4096)]]
    words = [text.get_text() for text in axes.texts]
    assert words == ["recompute\npeak 2 KiB", "keep all\npeak 4 KiB"]
    assert axes.get_xlabel() == "progress of each step, in %"


def test_the_rank_is_chosen(ledger_of):
    timeline = Timeline([ledger_of(KEPT), ledger_of(AGAIN, rank=1)])
    alt = memory_compared({"one": timeline}, rank=1).alt
    assert alt.startswith("Activations held by rank 1") and "one: peak 2 KiB after 38 %" in alt


def test_labels_keep_apart_and_below_the_edge():
    assert apart([0.2, 0.5]) == [0.2, 0.5]
    assert apart([0.5, 0.51]) == [0.5, 0.5 + APART]
    crowd = apart([0.88] * 5)
    gaps = [above - below for below, above in zip(crowd, crowd[1:], strict=False)]
    assert max(crowd) == 0.95 and gaps == pytest.approx([APART] * 4)


def test_many_samples_make_a_small_picture():
    ledger = Ledger(0)
    for number in range(8_000):
        count = 0 if number == 7_999 else 1000 + number % 7
        ledger.samples.append((number * 1e-6, "activations", count))
    picture = memory_compared({"one": ledger, "two": ledger})
    assert len(picture.svg) < 250_000 and "<img data-measured " in picture._repr_html_()


def test_nothing_to_compare_is_refused(ledger_of, runs):
    with pytest.raises(ValueError, match="0 changes of activation memory in 'none'"):
        memory_compared(runs | {"none": ledger_of(["hold gradients 5", "hold gradients 0"])})
    for number in (0, 6):
        with pytest.raises(ValueError, match=f"{number} runs, not 1 to 5"):
            memory_compared({str(i): runs["recompute"] for i in range(number)})
