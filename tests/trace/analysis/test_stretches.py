"""A trace shows every moment of a rank once, whatever overlaps."""

from __future__ import annotations

import pytest

from course_lib.trace import Stretch, Trace
from course_lib.trace.intervals import length

BUSY = Trace([
    Stretch(0, "compute", "forward", 1.0, 4.0),
    Stretch(0, "compute", "attend", 2.0, 3.0),
    Stretch(0, "communication", "all_reduce", 3.0, 6.0, (0, 1), 0),
    Stretch(0, "copy", "to host", 5.0, 7.0),
    Stretch(0, "step", "step 0", 0.0, 5.0),
    Stretch(0, "step", "step 1", 5.0, 10.0),
    Stretch(1, "step", "step 1", 5.5, 10.5),
])  # fmt: skip


def test_each_moment_is_shown_once() -> None:
    assert BUSY.doing(0) == [
        ("idle", (0.0, 1.0)),
        ("compute", (1.0, 4.0)),
        ("communication", (4.0, 6.0)),
        ("copy", (6.0, 7.0)),
        ("idle", (7.0, 10.5)),
    ]
    assert BUSY.doing(1) == [("idle", (0.0, 10.5))]
    assert BUSY.exposed(0) == [(4.0, 6.0)]
    assert BUSY.ranks == [0, 1]


def test_steps_go_from_the_first_rank_to_the_last() -> None:
    assert BUSY.steps() == {"step 0": (0.0, 5.0), "step 1": (5.0, 10.5)}
    half = BUSY.cut(*BUSY.steps()["step 0"])
    assert half.seconds == length(piece for _, piece in half.doing(0)) == 5.0
    assert half.of(0, "communication") == [(3.0, 5.0)]
    assert half.calls() == [], "the call ends in the next step"
    assert [call.begin for call in BUSY.cut(5.0, 8.0).calls()] == [3.0], "it keeps its beginning"


def test_an_empty_trace() -> None:
    nothing = Trace([], ranks=[0])
    assert (nothing.seconds, nothing.doing(0), nothing.steps()) == (0.0, [], {})
    assert Trace([], [0], (0.0, 2.0)).doing(0) == [("idle", (0.0, 2.0))]
    with pytest.raises(AttributeError):
        BUSY.stretches[0].begin = 3.0  # type: ignore[misc]
