"""Recorded runs that notebooks show where hosts cannot be emulated: what they must hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib.ranks.hosts.recorded import Run
from course_lib.trace import Timeline

PATHS = sorted((Path(__file__).parents[1] / "notebooks" / "data").glob("*mbit.json"))


def timelines(run: Run) -> Iterator[Timeline]:
    """Those of a run whose ranks returned `{name: {"ledger": ...}}`."""
    for name, found in run.values[0].items():
        if "ledger" in found:
            yield run.timeline(name, "ledger")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_recording_is_small_and_says_where_it_was_made(path: Path) -> None:
    assert path.stat().st_size < 300_000
    run = Run.load(path)
    assert f"_{run.mbit:g}mbit" in path.name
    assert len(run.values) == run.world_size
    assert "cores" in run.machine
    assert "/" not in run.machine


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_no_bytes_were_faster_than_the_link(path: Path) -> None:
    run = Run.load(path)
    for timeline in timelines(run):
        assert timeline.ranks == list(range(run.world_size))
        for ledger in timeline.ledgers:
            calls = ledger.calls()
            assert all(event.end is not None for event in calls)
            if run.world_size == run.hosts and calls:  # else some bytes stay on a host
                begin, end = min(e.begin for e in calls), max(e.end or 0.0 for e in calls)
                assert end - begin > 0.9 * ledger.sent() * 8 / run.mbit / 1e6


def test_overlap_holds_ways_that_overlap_and_ways_that_do_not() -> None:
    run = Run.load(next(path for path in PATHS if path.name.startswith("overlap")))
    early = set()
    for timeline in timelines(run):
        for ledger in timeline.ledgers:
            if ledger.calls():
                computed = max(span.end for span in ledger.spans)
                early.add(any(event.begin < computed for event in ledger.calls()))
    assert early == {True, False}
