"""Reads the dumps of PyTorch's own flight recorder as flight logs, so that both compare alike.

Notebook: 14 Profiling and debugging (find_desync).
Source: "Flight Recorder for Debugging Stuck Jobs" in PyTorch's documentation, version 2.x of the
dump; set TORCH_FR_BUFFER_SIZE before the process group is made.
Costs reading the dump; nothing of torch is needed.
The production version is `torchfrtrace`, which also shows stacks.

Collectives only: the recorder counts messages of both directions together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.trace.hangs.flight import Channel, FlightLog, Record
from course_lib.trace.readers.profiler import plain_name
from course_lib.trace.refusal import Refusal

DTYPES = {
    "Double": ("float64", 8), "Float": ("float32", 4), "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2), "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2),
    "Char": ("int8", 1), "Byte": ("uint8", 1), "Bool": ("bool", 1),
}  # fmt: skip


def read_torch_flight(
    dump: Mapping[str, Any], rank: int, groups: Mapping[str, Sequence[int]] | None = None
) -> FlightLog:
    """The flight log that a dump holds.

    Args:
        dump: of one rank, as parsed JSON or unpickled.
        rank: its global rank, which stands only in the name of the dump's file.
        groups: name of each process group to its global ranks. NCCL writes them down; gloo does
            not, and its default group is called "0".

    Raises:
        Refusal: the dump does not say who is in a group, and neither does `groups`.
    """
    known = {name: _ranks(about["ranks"]) for name, about in dump.get("pg_config", {}).items()}
    known.update({name: tuple(ranks) for name, ranks in (groups or {}).items()})
    calls = [entry for entry in dump["entries"] if not entry["is_p2p"]]
    records = [_record(entry, rank, known) for entry in calls]
    made = {
        Channel(known[name]): int(status["last_enqueued_collective"])
        for name, status in dump.get("pg_status", {}).items()
        if name in known
    }
    return FlightLog(rank, records, made)


def _record(entry: Mapping[str, Any], rank: int, groups: Mapping[str, tuple[int, ...]]) -> Record:
    name, axis = entry["process_group"]
    if name not in groups:
        raise Refusal(
            f"read a call on the process group {name!r}",
            f"the members of {', '.join(map(repr, groups)) or 'none'}",
            f"this dump does not name them: pass groups={{{name!r}: [...], ...}}",
        )
    kind = entry["input_dtypes"][0] if entry["input_dtypes"] else ""
    dtype, item = DTYPES.get(kind, (kind.lower(), 1))
    shape = tuple(entry["input_sizes"][0]) if entry["input_sizes"] else ()
    begin = entry["time_created_ns"] / 1e9
    over = entry["retired"] or entry["state"] == "completed"
    return Record(
        rank=rank,
        op=plain_name(entry["profiling_name"].partition(":")[2]),
        axis=axis,
        group=groups[name],
        seq=entry["collective_seq_id"] - 1,
        payload=math.prod(shape) * item,
        shape=shape,
        dtype=dtype,
        peer=-1,
        begin=begin,
        waited=begin,  # the recorder does not say: a call under way is taken to be waited for
        end=max(begin, (entry["time_discovered_completed_ns"] or 0) / 1e9) if over else None,
    )


def _ranks(text: str | Sequence[int]) -> tuple[int, ...]:
    """`[0, 1]`, as text or not."""
    return tuple(json.loads(text)) if isinstance(text, str) else tuple(text)
