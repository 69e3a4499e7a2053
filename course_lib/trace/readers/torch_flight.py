"""Reads the dumps of PyTorch's own flight recorder as flight logs, so that both compare alike.

Notebook: 14 Profiling and debugging (find_desync).
Source: "Flight Recorder for Debugging Stuck Jobs" in PyTorch's documentation, version 2.x of the
dump; set TORCH_FR_BUFFER_SIZE before the process group is made.
Costs reading the dump; nothing of torch is needed.
The production version is `torchfrtrace`, which also shows stacks. Both read pickles, which can run
any code when they are opened; ours opens none that needs more than lists, texts and numbers.

Collectives only: the recorder counts messages of both directions together.
"""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from course_lib.trace.hangs.flight import Channel, FlightLog, Record
from course_lib.trace.readers.profiler import plain_name
from course_lib.trace.refusal import Refusal

DTYPES = {
    "Double": ("float64", 8), "Float": ("float32", 4), "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2), "Long": ("int64", 8), "Int": ("int32", 4), "Short": ("int16", 2),
    "Char": ("int8", 1), "Byte": ("uint8", 1), "Bool": ("bool", 1),
}  # fmt: skip

# What is raised where something in a dump is of another kind than it should be.
WRONG = (ValueError, LookupError, TypeError, AttributeError, OverflowError)


def open_torch_flight(
    *paths: str | Path, groups: Mapping[str, Sequence[int]] | None = None
) -> list[FlightLog]:
    """The flight logs that NCCL's watchdog has written to files, one a rank.

    Args:
        paths: pickled, as NCCL's watchdog writes them, or JSON. A rank is the number at the end of
            its file's name: `flight_7`, `flight_7.json`.
        groups: as in `read_torch_flight`.

    Raises:
        Refusal: there is no file, a name ends in no number, two are of one rank, a file is no
            dump, or as in `read_torch_flight`.
    """
    logs: list[FlightLog] = []
    for path in map(Path, paths):
        number = re.search(r"(\d+)$", path.name.removesuffix(".json").removesuffix(".pkl"))
        if number is None:
            why = "a dump does not say whose it is: the rank is the number at the end of its name"
            raise Refusal(f"read the dump {path}", f"the name {path.name}", why)
        logs.append(read_torch_flight(_parsed(path), int(number[1]), groups))
    ranks = [log.rank for log in logs]
    if not ranks or len(set(ranks)) < len(ranks):
        found = f"ranks {ranks}" if ranks else "no file"
        raise Refusal("compare the dumps of several ranks", found, "each rank has one dump")
    return logs


def _parsed(path: Path) -> Any:
    """What a file holds: JSON, or a pickle of plain values."""
    try:
        with path.open("rb") as file:
            return json.load(file) if file.peek(1)[:1] == b"{" else _Plain(file).load()
    except (*WRONG, EOFError, RecursionError, MemoryError, pickle.UnpicklingError) as error:
        raise Refusal(
            f"read the dump {path}",
            f"{path.stat().st_size:,} bytes that are neither JSON nor a pickle: {error}",
            "a process that is killed while it writes its dump leaves a part of it",
        ) from None


class _Plain(pickle.Unpickler):
    """Opens lists, dicts, texts and numbers: a pickle of more could run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dump needs")


def without_log(logs: Sequence[FlightLog]) -> tuple[int, ...]:
    """The ranks that made calls together with these, and whose logs are not here."""
    named = {rank for log in logs for record in log.records for rank in record.group}
    return tuple(sorted(named - {log.rank for log in logs}))


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
        Refusal: it is no dump, or does not say who is in a group, and neither does `groups`.
    """
    if not isinstance(dump, Mapping) or not isinstance(dump.get("entries"), list):
        keys = ", ".join(map(repr, dump)) if isinstance(dump, Mapping) else type(dump).__name__
        why = "a dump keeps its calls in a list under 'entries'"
        raise Refusal("read a flight recorder's dump", keys or "nothing in it", why)
    known = {name: tuple(ranks) for name, ranks in (groups or {}).items()}
    try:
        config, status = dump.get("pg_config", {}), dump.get("pg_status", {})
        known = {name: _ranks(about["ranks"]) for name, about in config.items()} | known
        calls = [entry for entry in dump["entries"] if not entry["is_p2p"]]
        records = [_record(entry, rank, known) for entry in calls]
        made = {
            Channel(known[name]): int(about["last_enqueued_collective"])
            for name, about in status.items()
            if name in known
        }
        return FlightLog(rank, records, made)
    except Refusal:
        raise
    except WRONG as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise Refusal(
            f"read the flight recorder's dump of rank {rank}, version {dump.get('version', '?')}",
            found,
            "versions 2.x of a dump have all that is read here",
        ) from None


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
