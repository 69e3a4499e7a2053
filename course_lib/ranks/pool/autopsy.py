"""Who waits for whom: tells a deadlock from slowness, and says it in one sentence.

Everything here is a function of reports (`where.report` of each rank), so it is tested as data.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

from course_lib.trace.hangs.lost import lost_peer as is_lost

Report = dict[str, Any]

IDLE_WAKEUPS = 200  # per second: gloo's own thread looks around 100 times a second while idle

FEW = 8  # ranks that get a row each
MOST_LETTERS = 72  # of a row's first part: a long message must not push all places to the right

# Why gloo aborts a rank, as the report of that rank says it.
OTHER_SIZE = ": a message did not fit its tensor, so the shapes of the ranks differ"

PAIRED = ("send", "recv", "isend", "irecv")


def standstill(earlier: Mapping[int, Report], later: Mapping[int, Report], seconds: float) -> bool:
    """Whether no rank can ever move again, judged from two looks `seconds` apart.

    A rank stands still if it has finished, raised or died, or if it is inside a communication
    call, at the same place in both looks (its own, and not one told twice), its connections
    carried nothing, its program did not wake up in between, and no other thread of it was at work.
    While one rank still computes, the others may wait: that is no deadlock. If all have ended
    there is nothing left that could be stuck.
    """
    if not earlier or earlier.keys() != later.keys():
        return False
    waiting = [rank for rank in later if later[rank]["state"] == "running"]
    return bool(waiting) and all(
        earlier[rank]["state"] == "running" and _same(earlier[rank], later[rank], seconds)
        for rank in waiting
    )


def _same(earlier: Report, later: Report, seconds: float) -> bool:
    place = ("line", "call", "seq", "peer", "axis", "talking")
    asks = later.get("asks", False)  # then only the place says whether it moves
    if not later.get("talking") or (later.get("runnable") and not asks):
        return False
    if any(earlier.get(k) != later.get(k) for k in place):
        return False
    if later.get("at", 0.0) - earlier.get("at", 0.0) < seconds / 2:
        return False  # it had no turn to answer again, and so none to move
    if asks:
        return True
    if earlier.get("carried") != later.get("carried"):
        return False
    before, now = earlier["threads"], later["threads"]
    if before.get("main") != now.get("main"):
        return False
    for thread, (slept, worked) in now.items():
        was = before.get(thread, (slept, worked))
        if slept - was[0] > IDLE_WAKEUPS * seconds or worked - was[1] > seconds / 4:
            return False
    return True


# --- in words ------------------------------------------------------------------------------------
def table(reports: Mapping[int, Report]) -> list[str]:
    """One line a rank: what it does, where, in which call; many ranks that do the same, once."""
    rows: dict[tuple[Any, ...], list[int]] = {}
    for rank, report in sorted(reports.items()):
        text = textwrap.shorten(_doing(report), MOST_LETTERS, placeholder=" …")
        alone = rank if len(reports) <= FEW else -1
        rows.setdefault((text, _place(report), alone), []).append(rank)
    who = [names(ranks) for ranks in rows.values()]
    first = max(map(len, who), default=0) if len(reports) > FEW else 0
    width = max((len(text) for text, _, _ in rows), default=0)
    return [
        f"  {ranks:<{first}}  {text:<{width}}  {place}".rstrip()
        for ranks, (text, place, _) in zip(who, rows, strict=True)
    ]


def _doing(report: Report) -> str:
    if report["state"] == "finished":
        return "finished"
    if report["state"] in ("running", "interrupted"):
        return f"waits in {call_name(report)}" if report.get("talking") else "is at work"
    if report["state"] == "stopped":
        return "stopped by a signal"
    if lost_peer(report):
        return "lost its connection to a rank that ended"
    if report["state"] == "raised":
        return f"raised {report['error']}"
    return str(report.get("error") or report["state"])


def _place(report: Report) -> str:
    source = report.get("source", "").partition("  #")[0].rstrip()
    return f"line {report['line']}: {source}" if source else ""


def lost_peer(report: Report) -> bool:
    """Whether a rank failed only because another one had ended."""
    return report["state"] == "raised" and is_lost(report.get("error", ""))


def call_name(report: Report) -> str:
    """`all_reduce, call 3 on world` or `recv from rank 2 (message 0)`."""
    call, peer = report.get("call") or "a call", report.get("peer", -1)
    if call in PAIRED and peer >= 0:
        way = "to" if "send" in call else "from"
        number = f" (message {report['seq']})" if "seq" in report else ""
        return f"{call} {way} rank {peer}{number}"
    if "seq" not in report:
        return call
    return f"{call}, call {report['seq']} on {_group_name(report)}"


def _group_name(report: Report) -> str:
    members = ",".join(map(str, report.get("group", [])))
    return f"{report['axis']} [{members}]" if report.get("axis") else f"ranks [{members}]"


def explain(reports: Mapping[int, Report]) -> str:
    """One sentence: who waits for whom, and why that never ends."""
    sentence = _explain(reports)
    return sentence[0].upper() + sentence[1:]


def _explain(reports: Mapping[int, Report]) -> str:
    running = {r: rep for r, rep in sorted(reports.items()) if rep["state"] == "running"}
    gone = {r: rep for r, rep in sorted(reports.items()) if rep["state"] != "running"}
    waiting = {r: rep for r, rep in running.items() if rep.get("talking")}
    if len(waiting) < len(running):
        busy = sorted(set(running) - set(waiting))
        return f"{_wait_in(waiting)}; {names(busy)} {_verb(busy, 'is', 'are')} still at work."
    if all(rep.get("call") in PAIRED for rep in waiting.values()):
        return _explain_messages(waiting, gone)
    failed = any(rep["state"] != "finished" for rep in gone.values())
    if gone and (failed or len({_kind(rep) for rep in waiting.values()}) == 1):
        return _explain_gone(waiting, gone)
    if len({(*_kind(rep), rep.get("seq")) for rep in waiting.values()}) > 1:
        return _explain_mismatch(waiting)
    return _explain_alike(waiting)


def _kind(report: Report) -> tuple[Any, ...]:
    return (report.get("call"), tuple(report.get("group", ())), report.get("axis"))


def _verb(ranks: Any, one: str, several: str) -> str:
    return one if len(ranks) == 1 else several


def _kinds(waiting: Mapping[int, Report]) -> dict[str, list[int]]:
    """Each call that ranks wait in, with the ranks."""
    kinds: dict[str, list[int]] = {}
    for rank, report in waiting.items():
        kinds.setdefault(call_name(report), []).append(rank)
    return kinds


def _wait_in(waiting: Mapping[int, Report]) -> str:
    """`ranks 0 and 1 wait in barrier, call 3 on world [0,1,2]`."""
    kinds = _kinds(waiting).items()
    return "; ".join(f"{names(r)} {_verb(r, 'waits', 'wait')} in {kind}" for kind, r in kinds)


def _explain_alike(waiting: Mapping[int, Report]) -> str:
    """All ranks that run the cell are in the same call, and it does not end."""
    members = {rank for rep in waiting.values() for rank in rep.get("group", ())}
    missing = members - set(waiting)
    if missing:
        verb = _verb(waiting, "waits", "wait")
        return f"{names(waiting)} {verb} for {names(missing)}, which did not run this cell."
    shapes = {tuple(rep.get("shape", ())) for rep in waiting.values()}
    if len(shapes) > 1:
        each = sizes(waiting) or "; ".join(
            f"rank {r} {list(rep.get('shape', ()))}" for r, rep in waiting.items()
        )
        return f"Every rank is in the same call, with tensors of different shapes: {each}."
    return f"{_wait_in(waiting)} and nobody moves."


def _has_shape(report: Report) -> bool:
    """Whether it tells a tensor's shape; what an answer under grading tells may be anything."""
    shape = report.get("shape")
    return isinstance(shape, list) and all(isinstance(length, int) for length in shape)


def sizes(reports: Mapping[int, Report]) -> str:
    """`rank 0: all_reduce of 20 elements, rank 1: of 12`; "" if no ranks' tensors differ.

    Asked for ranks that a backend has ended or refused: what each was in is in its report.
    """
    known = {
        rank: report
        for rank, report in sorted(reports.items())
        if report.get("call") and _has_shape(report)
    }
    several = len({report.get("dtype", "") for report in known.values()}) > 1
    same: dict[tuple[str, int, str], list[int]] = {}
    for rank, report in known.items():
        peer = report.get("peer", -1) if report["call"] in PAIRED else -1
        way = "" if peer < 0 else f" {'to' if 'send' in report['call'] else 'from'} rank {peer}"
        dtype = f" in {report.get('dtype')}" if several else ""
        key = (report["call"] + way, math.prod(report["shape"]), dtype)
        same.setdefault(key, []).append(rank)
    if len({(count, dtype) for _, count, dtype in same}) < 2:
        return ""
    one_call = len({call for call, _, _ in same}) == 1
    each = [
        f"{names(ranks)}: of {count}{dtype}"
        if one_call and at
        else f"{names(ranks)}: {call} of {count} element{'' if count == 1 else 's'}{dtype}"
        for at, ((call, count, dtype), ranks) in enumerate(same.items())
    ]
    return ", ".join(each)


def _explain_mismatch(waiting: Mapping[int, Report]) -> str:
    each = "; ".join(f"{names(ranks)} in {kind}" for kind, ranks in _kinds(waiting).items())
    rule = "All ranks of a group must make the same collective calls in the same order."
    if len({report.get("call") for report in waiting.values()}) > 1:
        return f"The ranks are in different calls: {each}. {rule}"
    if len({_kind(report) for report in waiting.values()}) > 1:
        where = "The ranks wait in different groups"
        return f"{where}: {each}. Each group waits for a member that is elsewhere."
    sequences = {report.get("seq", 0) for report in waiting.values()}
    late = [r for r, rep in waiting.items() if rep.get("seq", 0) == min(sequences)]
    return (
        f"The ranks are in different calls: {each}. {names(late).capitalize()} "
        f"{_verb(late, 'is', 'are')} {max(sequences) - min(sequences)} behind: "
        f"a call was skipped or made once too often. {rule}"
    )


def _explain_gone(waiting: Mapping[int, Report], gone: Mapping[int, Report]) -> str:
    needed = max(report.get("made", 0) for report in waiting.values())
    counted = all(r.get("axis") == "world" and r.get("shape") for r in waiting.values())
    ends: dict[str, list[int]] = {}
    for rank, report in gone.items():
        made_it = counted and report.get("made", -1) >= needed > 0
        ends.setdefault(_end(report["state"], made_it), []).append(rank)
    why = "; ".join(f"{names(ranks)} {end}" for end, ranks in ends.items())
    return f"{_wait_in(waiting)}; {why}. A collective ends when all have called it."


def _end(state: str, made_it: bool) -> str:
    if state == "finished" and made_it:
        return "finished and made as many calls (with a tensor of another size?)"
    ends = {"finished": "finished without making that call", "raised": "raised an exception before"}
    return ends.get(state, "ended before")


def _explain_messages(waiting: Mapping[int, Report], gone: Mapping[int, Report]) -> str:
    senders = all("send" in report["call"] for report in waiting.values())
    if senders and all(report["peer"] in waiting for report in waiting.values()):
        chain = ", ".join(f"{r} to {rep['peer']}" for r, rep in waiting.items())
        return (
            f"Everybody sends and nobody receives (rank {chain}). "
            "A send ends only when its receiver takes it: start the receive first."
        )
    parts = []
    for rank, report in waiting.items():
        peer = report.get("peer", -1)
        who = f"rank {peer}, which {_state_of(peer, waiting, gone)}" if peer >= 0 else "anybody"
        sends = "send" in report["call"]
        wants = f"{who}, to take a message" if sends else f"a message from {who}"
        parts.append(f"rank {rank} waits for {wants}")
    return "; ".join(parts) + ". Every send needs its receive."


def _state_of(rank: int, waiting: Mapping[int, Report], gone: Mapping[int, Report]) -> str:
    if rank in waiting:
        return f"waits in {call_name(waiting[rank])}"
    ended = {"finished": "has finished", "raised": "has raised an exception", "killed": "has ended"}
    return ended[gone[rank]["state"]] if rank in gone else "does not run this cell"


def names(ranks: Any) -> str:
    """`rank 2`, `ranks 0, 1 and 3`, `ranks 0–5`: how a set of ranks is written everywhere."""
    order = sorted(ranks)
    if not order:
        return "no ranks"
    if len(order) == 1:
        return f"rank {order[0]}"
    if len(order) > 2 and order == list(range(order[0], order[-1] + 1)):
        return f"ranks {order[0]}–{order[-1]}"
    return "ranks " + ", ".join(map(str, order[:-1])) + f" and {order[-1]}"
