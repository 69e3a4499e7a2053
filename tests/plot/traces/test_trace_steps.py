"""The four looks at a trace: their numbers are the explanation's, and nothing is drawn outside."""

from __future__ import annotations

import re

import pytest

from course_lib.plot import trace_steps
from course_lib.plot.player.style import GREEN, VERMILLION, rank_color
from course_lib.plot.traces.trace_steps import LEFT, WIDE, ticks
from course_lib.trace import Stretch, Trace, explain

GROUP = (0, 1)


def trace(late: float = 2.0) -> Trace:
    """Two ranks; the second computes longer, and half of the first's call is hidden."""
    found = []
    for rank, work in enumerate((4.0, 4.0 + late)):
        found += [
            Stretch(rank, "compute", "forward", 0.0, work),
            Stretch(rank, "communication", "all_reduce", work - 1.0, 5.0 + late, GROUP, 0),
            Stretch(rank, "compute", "update", 5.0 + late, 6.0 + late),
        ]
    return Trace(found)


def boxes(svg: str) -> list[tuple[float, float, str]]:
    """x, width and colour (or role) of each rectangle."""
    return [
        (float(x), float(width), fill or kind)
        for x, width, fill, kind in re.findall(
            r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*?(?:fill="(#\w+)"|class="(\w+)")',
            svg,
        )
    ]


def test_each_look_says_the_explanations_numbers() -> None:
    player, found = trace_steps(trace()), explain(trace())
    happened, counted, waited, critical = (frame.caption for frame in player.frames)
    assert "2 ranks, 8 s. Calls: all_reduce." in happened
    assert f"{found.exposed_share:.0%} of the ranks' time, most on rank 0: 3 s" in counted
    assert "rank 1: the others waited for it, 1 s in total" in waited
    # The call was launched at 5 s and took to 7; before it and after it there is work.
    assert critical.endswith("The whole path: compute 6 s, all_reduce 2 s.")


def test_what_is_drawn_is_as_long_as_it_was() -> None:
    player, second = trace_steps(trace()), WIDE / 8.0
    exposed = sum(wide for _, wide, fill in boxes(player.frames[1].parts[0])
                  if fill == VERMILLION and wide != 12)  # fmt: skip
    assert exposed == pytest.approx((3.0 + 1.0) * second, abs=0.2)
    hidden = sum(wide for _, wide, fill in boxes(player.frames[1].parts[0])
                 if fill == GREEN and wide != 12)  # fmt: skip
    assert hidden == pytest.approx((1.0 + 1.0) * second, abs=0.2)
    waited = sum(wide for _, wide, fill in boxes(player.frames[2].parts[0])
                 if fill == rank_color(1))  # fmt: skip
    assert waited == pytest.approx(1.0 * second, abs=0.2)
    for frame in player.frames:
        for x, wide, _ in boxes(frame.parts[0]):
            assert x + wide <= LEFT + WIDE + 0.2


def test_nobody_waits() -> None:
    assert trace_steps(trace(late=0.0)).frames[2].caption == "Nobody waited for anybody."


def test_ticks_are_round_and_few() -> None:
    for seconds in (3e-6, 0.0042, 0.2, 1.0, 7.9, 8.1, 150.0):
        found = ticks(seconds)
        assert 4 <= len(found) <= 9 and found[0] == 0 and found[-1] <= seconds
        assert f"{found[1]:.0e}"[0] in "125" and (len(found) + 1) * found[1] > seconds


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="a trace"):
        trace_steps(Trace([]))
