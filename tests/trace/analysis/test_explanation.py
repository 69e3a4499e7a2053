"""The explanation of a step: nothing summed twice, and shares that add up."""

from __future__ import annotations

import pytest

from course_lib.trace import Flops, Stretch, Trace, explain

GROUP = (0, 1)


def step(number: int, begin: float, late: float) -> list[Stretch]:
    """Four seconds: forward, backward beside two all-reduces at once, and the rest of them."""
    end, found = begin + 4.0, []
    for rank in range(2):
        launch = begin + 1.0 + late * rank
        found += [
            Stretch(rank, "step", f"step {number}", begin, end),
            Stretch(rank, "compute", "forward", begin, begin + 1.0),
            Stretch(rank, "compute", "backward", begin + 1.0, begin + 2.0),
            Stretch(rank, "compute", "attend", begin + 1.2, begin + 1.4),
            Stretch(rank, "communication", "all_reduce", launch, end - 0.5, GROUP, 2 * number),
            Stretch(rank, "communication", "all_reduce", launch, end - 0.5, GROUP, 2 * number + 1),
        ]
    return found


def test_what_overlaps_counts_once() -> None:
    found = explain(Trace(step(0, 0.0, 0.0)))
    for share in found.shares:
        assert (share.compute, share.exposed, share.hidden) == (2.0, 1.5, 1.0)
        assert (share.copy, share.idle, share.communication) == (0.0, 0.5, 2.5)
    assert found.exposed_share == 1.5 / 4.0
    assert found.straggler is None and found.mfu is None
    assert found.text().startswith(
        "step 4000.000 ms, 37.5% of it exposed\nrank 0: compute 2000.000 ms"
    )


def test_the_straggler_of_two_steps() -> None:
    trace = Trace([*step(0, 10.0, 1.5), *step(1, 14.0, 1.5)])
    found = explain(trace, Flops(model=6e9, hardware=8e9, peak=2e9))
    assert (found.seconds, found.steps, found.step_seconds) == (8.0, 2, 4.0)
    assert found.mfu == pytest.approx(6e9 / (4.0 * 2 * 2e9))
    assert found.hfu == pytest.approx(8e9 / (4.0 * 2 * 2e9))
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.meetings) == (1, 4)
    assert found.straggler.seconds == pytest.approx(2 * 0.5), "hidden but for half a second a step"
    assert sum(segment.seconds for segment in found.path) == pytest.approx(8.0)
    assert (
        found.text().splitlines()[0]
        == "step 4000.000 ms, 31.2% of it exposed; MFU 37.5%, HFU 50.0%"
    )
    assert "straggler: rank 1; per step, the others waited for it for 500.000 ms" in found.text()


def test_one_step_of_several() -> None:
    trace = Trace([*step(0, 0.0, 0.0), *step(1, 4.0, 1.5)])
    found = explain(trace.cut(*trace.steps()["step 1"]))
    assert (found.seconds, found.steps) == (4.0, 1)
    assert found.straggler is not None and found.straggler.meetings == 2


def test_what_lies_outside_the_steps_is_left_out() -> None:
    warm_up = [Stretch(0, "compute", "compile", -50.0, -1.0)]
    assert explain(Trace([*warm_up, *step(0, 0.0, 0.0)])).seconds == 4.0


def test_an_empty_trace() -> None:
    found = explain(Trace([], ranks=[0]))
    assert (found.seconds, found.exposed_share, found.path) == (0.0, 0.0, [])
    assert explain(Trace([]), Flops(1.0, 1.0, 1.0)).mfu is None
