"""Opens Chrome traces as one `Trace`: our own timeline's, and those that torch.profiler writes.

Notebook: 14 Profiling and debugging (explain_trace).
Source: the Chrome trace event format ("Trace Event Format", Google), which both are written in.
Costs reading the file; nothing of torch is needed.
The production version (Perfetto, Holistic Trace Analysis) also reads flows, counters and stacks.

Our file holds all ranks. torch.profiler writes one a rank, so give all of them.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.trace.analysis.stretches import Stretch, Trace
from course_lib.trace.event import Event
from course_lib.trace.intervals import Interval, subtract, union
from course_lib.trace.readers.profiler import read_profiler
from course_lib.trace.refusal import Refusal

STEP = re.compile(r"step \d+")  # `step 3` marks a training step; `step` alone is the optimizer's


def open_traces(*paths: Path) -> Trace:
    """The trace that files hold: one of ours, or one of torch.profiler's for each rank.

    Args:
        paths: JSON files, packed with gzip if they end in `.gz`.

    Raises:
        Refusal: as in `read_traces`.
    """
    documents = []
    for path in paths:
        data = path.read_bytes()
        documents.append(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data))
    return read_traces(*documents)


def read_traces(*documents: Mapping[str, Any]) -> Trace:
    """The same from parsed JSON.

    Raises:
        Refusal: a document is no Chrome trace, or several are of the same rank.
    """
    for document in documents:
        if not isinstance(document.get("traceEvents"), list):
            raise Refusal(
                "read a Chrome trace",
                f"JSON with the keys {', '.join(map(repr, document)) or 'none'}",
                "a Chrome trace keeps its events in a list under 'traceEvents'",
            )
    if len(documents) == 1 and "schemaVersion" not in documents[0]:
        return _read_ours(documents[0]["traceEvents"])
    return read_profiler(documents)


# --- our own -------------------------------------------------------------------------------------
def _read_ours(events: list[dict[str, Any]]) -> Trace:
    ranks = [e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    made = [e for e in events if e["ph"] == "X" and e["tid"] == "calls"]
    still = {rank: union(_waits(made, rank)) for rank in ranks}
    stretches = [_call(e) for e in made if e["args"]["end"] is not None]
    for event in (e for e in events if e["ph"] == "X" and e["tid"] == "work" and e["dur"] > 0):
        stretches += _work(event, still[event["pid"]])
    return Trace(stretches, ranks)


def _waits(made: list[dict[str, Any]], rank: int) -> list[Interval]:
    """When this rank's program stood still in a call: no work, also where a span goes on."""
    found = []
    for event in (e for e in made if e["pid"] == rank):
        waited = event["args"].get("waited")
        if waited is not None and event["args"]["end"] is not None:
            begin, end = _times(event)
            found.append((begin + waited - event["args"]["begin"], end))
    return found


def _work(event: dict[str, Any], still: list[Interval]) -> list[Stretch]:
    rank, name = event["pid"], event["name"]
    if STEP.fullmatch(name):
        return [Stretch(rank, "step", name, *_times(event))]
    parts = subtract([_times(event)], still)
    return [Stretch(rank, "compute", name, *part) for part in parts]


def _call(event: dict[str, Any]) -> Stretch:
    booked = Event.from_dict(event["args"])
    begin, end = _times(event)
    if booked.arrived is not None:  # the data were there before anybody waited
        end = begin + booked.arrived - booked.begin
    return Stretch(
        event["pid"], "communication", booked.op, begin, end, booked.group, booked.seq, booked.peer
    )


def _times(event: dict[str, Any]) -> Interval:
    """Begin and end in seconds; the file counts microseconds."""
    return event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
