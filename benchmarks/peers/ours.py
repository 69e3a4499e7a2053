"""`%%ranks`, the notebook runtime of this course."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.way import Way

ROOT = str(Path(__file__).resolve().parents[2])

OURS = Way(
    name="ours",
    load="%load_ext course_lib",
    start=("%ranks 4",),
    header="%%ranks 4",
    pull="got = pull('big', rank=0)",
    restart=(),  # the next cell does it
    env={"PYTHONPATH": ROOT, "COURSE_LIVE": "1"},
)
