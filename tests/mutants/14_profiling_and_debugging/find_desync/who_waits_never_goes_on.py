"""mutant: a rank that waits for one that can come will go on"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Log = Mapping[str, Any]
Record = Mapping[str, Any]


class Finding(NamedTuple):
    """What is wrong."""

    kind: str
    group: tuple[int, ...]
    seq: int
    ranks: tuple[int, ...]


def difference(made: Mapping[int, Record]) -> tuple[str, tuple[int, ...]] | None:
    """What differs in one call."""
    for kind in ("op", "dtype", "shape"):
        sides: dict[Any, list[int]] = {}
        for rank in sorted(made):
            sides.setdefault(made[rank][kind], []).append(rank)
        if len(sides) > 1:
            usual = max(sides.values(), key=len)
            return kind, tuple(sorted(made.keys() - set(usual)))
    return None


def lacking(group: tuple[int, ...], seq: int, logs: Sequence[Log]) -> set[int]:
    """The ranks of the group that have not begun its call number `seq`."""
    return {
        log["rank"]
        for log in logs
        if log["rank"] in group and log["made"].get(group, 0) <= seq
    }


def never_coming(logs: Sequence[Log]) -> set[int]:
    """The ranks that never make another call."""
    waits_for = {}
    for log in logs:
        if log["state"] == "running":
            still = [record for record in log["records"] if record["state"] == "waiting"]
            late = [lacking(record["group"], record["seq"], logs) for record in still]
            waits_for[log["rank"]] = set().union(*late)
    never = {log["rank"] for log in logs}
    return never - {rank for rank, late in waits_for.items() if not late}


def find_desync(logs: Sequence[Log]) -> Finding | None:
    """The first fault; None if all calls agree and every rank can go on or has done its part."""
    calls: dict[tuple[tuple[int, ...], int], dict[int, Record]] = {}
    for log in logs:
        for record in log["records"]:
            calls.setdefault((record["group"], record["seq"]), {})[log["rank"]] = record
    ended = {log["rank"] for log in logs if log["state"] != "running"}
    never, faults = never_coming(logs), []
    for (group, seq), made in calls.items():
        begin, late = min(r["begin"] for r in made.values()), lacking(group, seq, logs)
        if odd := difference(made):
            faults.append((1, begin, Finding(odd[0], group, seq, odd[1])))
        elif gone := late & ended or late & never:
            sort = 2 if late & ended else 3
            faults.append((sort, begin, Finding("missing", group, seq, tuple(sorted(gone)))))
    return min(faults)[2] if faults else None
