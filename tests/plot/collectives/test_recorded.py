"""Steppers of collectives that really ran: the records of processes, not ones written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.plot import collective_steps
from course_lib.plot.collectives.replay import replay
from course_lib.trace import Ledger, Timeline


def on_ranks(group: Any, name: str, count: int) -> dict[str, Any]:
    """Runs one collective on `count` floats and returns this rank's ledger."""
    import torch

    from course_lib.comm.algorithms.halving_doubling import halving_doubling_all_reduce
    from course_lib.comm.algorithms.ring import ring_all_reduce
    from course_lib.comm.algorithms.tree import tree_broadcast, tree_reduce

    tensor = torch.full((count,), float(group.rank))
    run = {
        "ring": lambda: ring_all_reduce(tensor, group),
        "halving": lambda: halving_doubling_all_reduce(tensor, group),
        "tree": lambda: tree_broadcast(tensor, 1, group),
        "inverse tree": lambda: tree_reduce(tensor, 0, group),
    }
    run[name]()
    return group.ledger.to_dict()


@pytest.mark.parametrize(
    ("name", "op", "size", "count", "steps"),
    [
        ("ring", "all_reduce", 4, 1 << 21, 6),  # chunks of 2 MiB travel in two pieces
        ("ring", "all_reduce", 3, 10, 4),
        ("halving", "all_reduce", 4, 10, 4),  # two chunks in one message
        ("halving", "all_reduce", 3, 10, 4),
        ("tree", "broadcast", 3, 10, 2),
        ("inverse tree", "reduce", 4, 10, 2),
    ],
)
def test_a_real_run_is_shown_complete(ranks, name, op, size, count, steps):
    ledgers = [Ledger.from_dict(data) for data in ranks(on_ranks, size, name, count)]
    timeline = Timeline(ledgers)
    story = replay(timeline, op)
    assert len(story.states) == steps + 1
    assert story.missing() == []
    assert list(story.states[-1].sent.values()) == timeline.sent()
    assert collective_steps(timeline, op).frames[-1].caption.startswith("Done")
