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
import math
import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from course_lib.trace.analysis.stretches import Stretch, Trace
from course_lib.trace.event import Event
from course_lib.trace.intervals import Interval, subtract, union
from course_lib.trace.readers.profiler import read_profiler
from course_lib.trace.refusal import Refusal

GZIP = b"\x1f\x8b"  # how such a file begins
STEP = re.compile(r"step \d+")  # `step 3` marks a training step; `step` alone is the optimizer's


def open_traces(*paths: str | Path) -> Trace:
    """The trace that files hold: one of ours, or one of torch.profiler's for each rank.

    Args:
        paths: JSON files; they may be packed with gzip.

    Raises:
        Refusal: a file is no JSON, or as in `read_traces`.
    """
    return _joined([(str(path), _parsed(Path(path))) for path in paths])


def _parsed(path: Path) -> Any:
    data = path.read_bytes()
    try:
        return json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
    except (ValueError, EOFError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
        raise Refusal(
            f"read the trace {path}",
            f"{len(data):,} bytes that are no JSON: {error}",
            "a process that is killed while it writes its trace leaves a part of it",
        ) from None


def read_traces(*documents: Mapping[str, Any] | Sequence[Any]) -> Trace:
    """The same from parsed JSON.

    Raises:
        Refusal: a document is no Chrome trace, several are of the same rank, or none says anything.
    """
    return _joined([(f"document {number}", each) for number, each in enumerate(documents)])


def _joined(documents: Sequence[tuple[str, Any]]) -> Trace:
    """One trace of documents and their names."""
    read = [_with_a_list(name, document) for name, document in documents]
    alone = len(read) == 1 and isinstance(documents[0][1], Mapping)
    try:
        if alone and "schemaVersion" not in read[0]:
            trace = _read_ours(read[0]["traceEvents"])
        else:
            trace = read_profiler(read)
    except (LookupError, TypeError, AttributeError) as error:
        raise Refusal(
            f"read the Chrome trace {', '.join(name for name, _ in documents)}",
            f"{type(error).__name__}: {error}",
            "what torch.profiler and this course's timeline write has all that is read here",
        ) from error
    if not trace.stretches:
        raise Refusal(
            f"read {len(read)} traces",
            "no step, no call and no work in them",
            "a profiler with a schedule writes what its active steps did, if there were any",
        )
    return trace


def _with_a_list(name: str, document: Any) -> Mapping[str, Any]:
    """The document, with sound events; the bare list of them, allowed as well, becomes one."""
    if isinstance(document, list):
        document = {"traceEvents": document}
    if not isinstance(document, Mapping) or not isinstance(document.get("traceEvents"), list):
        keys = document if isinstance(document, Mapping) else ()
        raise Refusal(
            f"read the Chrome trace {name}",
            f"JSON with the keys {', '.join(map(repr, keys)) or 'none'}",
            "a Chrome trace keeps its events in a list under 'traceEvents'",
        )
    for number, event in enumerate(document["traceEvents"]):
        if not _is_event(event):
            raise Refusal(
                f"read the Chrome trace {name}",
                f"event {number}: {textwrap.shorten(repr(event), 200)}",
                "an event has its kind in `ph`; one that took time (X) has a `name`, the thread "
                "`tid`, its beginning `ts` and its length `dur`, both in microseconds",
            )
    return document


def _is_event(event: Any) -> bool:
    """Whether the format's own fields are there, as far as they are read here."""
    if not isinstance(event, Mapping) or not isinstance(event.get("ph"), str):
        return False
    if event["ph"] != "X":
        return True
    times = (event.get("ts"), event.get("dur"))
    return (
        all(isinstance(time, (int, float)) and math.isfinite(time) for time in times)
        and isinstance(event.get("name"), str)
        and isinstance(event.get("args", {}), Mapping)
        and "tid" in event
    )


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
