"""From what a judge saw of the ranks to the one fault that explains it."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from course_lib.comm.matching import Deadlock, Difference
from course_lib.grade import faults
from course_lib.grade.faults import Fault
from course_lib.ranks.pool import autopsy
from course_lib.trace.hangs.lost import lost_peer

if TYPE_CHECKING:
    from course_lib.grade.judge.view import RankView

# Which fault explains the others, where ranks end in different ways.
FIRST = (
    "tampering",
    "syntax",
    "no_function",
    "not_written",
    "import",
    "borrowed_import",
    "borrowed",
    "memory",
    "process",
    "network",
    "refused",
    "cpu",
    "killed",
    "exit",
    "exception",
)
SIZES = "all ranks of a group must bring tensors of the same size to a collective"
# What torch.distributed says to an answer that is in no process group of torch's.
NO_TORCH = re.compile("Default process group has not been initialized|called past course_lib.comm")
PAST = "torch.distributed was called past course_lib.comm"
ALIKE = "all ranks of a group must ask for the same in each call"
FIT = {
    "size": SIZES,
    "dtype": "both ends of a call must use the same dtype",
    "sizes": "what one rank gives another must be what the other takes",
}
BORROWED = "it is to be written here: calling what is there shows nothing of how it is done"
CAUSES = {
    "borrowed": BORROWED,
    "borrowed_import": BORROWED,
    "exit": "sys.exit ends the process; return from the function instead",
    "memory": "a rank may use 2 GiB more than at its start",
    "process": "everything must happen in the rank's own process",
    "network": "ranks talk to each other over the group that they are given",
    "refused": "an answer may read Python, torch and this course's library, and write in its "
    "working folder; the system refuses the rest",
    "tampering": "the verdict is computed elsewhere; changing the grader changes nothing",
}


def of_finished(ranks: Sequence[RankView]) -> Fault | None:
    """What is wrong although every rank has answered."""
    for view in ranks:
        if view.answer.get("tampering"):
            return _tampering(view)
    left = {view.index: view.answer["threads"] for view in ranks if view.answer.get("threads")}
    if left:
        names = ", ".join(sorted({name for threads in left.values() for name in threads}))
        return Fault(
            "threads",
            f"{autopsy.names(left)} left threads running: {names}",
            tuple(left),
            cause="join every thread before the function returns",
        )
    return None


def of_ended(ranks: Sequence[RankView], path: str) -> Fault:
    """The fault that explains why some ranks raised or died."""
    for view in ranks:
        if view.answer.get("tampering"):
            return _tampering(view)
    found = [_of_rank(view) for view in ranks if view.state in ("raised", "killed")]
    origin = [fault for fault in found if not lost_peer(fault.message)] or found
    first = min(origin, key=lambda fault: FIRST.index(fault.kind))
    same = [f for f in origin if (f.kind, f.line) == (first.kind, first.line)]
    merged = _merged(same, first, len(ranks))
    aborted = any(view.child.status == -signal.SIGABRT for view in ranks)
    sizes = autopsy.sizes({view.index: view.report() for view in ranks if view.state != "finished"})
    if first.kind != "killed" or not aborted or not sizes:
        return merged
    return replace(merged, message=f"{merged.message}: the sizes differ: {sizes}", cause=SIZES)


def _of_rank(view: RankView) -> Fault:
    if view.garbled:
        return Fault("tampering", f"rank {view.index} sent {view.garbled}", (view.index,))
    if view.state == "killed":
        return faults.ended(view.child.status or 0, view.index)
    answer = view.answer
    kind = answer.get("kind", "exception")
    kind = kind if kind in FIRST else "exception"
    cause = CAUSES.get(kind, "")
    rows = (f"line {answer['line']}: {answer.get('source', '')}",) if answer.get("line") else ()
    message = str(answer.get("error", "no error given"))
    if NO_TORCH.search(message):
        message, cause = (
            PAST,
            "ranks talk over the group that they are given: what bypasses comm is in no book",
        )
    if message.startswith("EOFError: EOF when reading a line"):
        cause = "nobody answers `input`: all that an answer needs is in its arguments"
    if kind == "not_written":
        message = message.partition(": ")[2]
    return Fault(kind, message, (view.index,), int(answer.get("line") or 0), rows, cause)


def _merged(same: Sequence[Fault], first: Fault, world: int) -> Fault:
    """One fault for all ranks that show it."""
    ranks = tuple(rank for fault in same for rank in fault.ranks)
    message = first.message
    where = "every rank" if len(ranks) == world and world > 1 else autopsy.names(ranks)
    if first.kind in ("exception", "memory", "process", "network", "refused"):
        message = f"{where}: {message}"
    elif first.kind == "exit" and message.startswith("sys.exit"):
        message = f"{where} called {message}"
    return Fault(first.kind, message, ranks, first.line, first.rows, first.cause)


def _tampering(view: RankView) -> Fault:
    what = "; ".join(list(dict.fromkeys(map(str, view.answer["tampering"])))[:3])
    return Fault("tampering", f"rank {view.index} {what}", (view.index,), cause=CAUSES["tampering"])


def of_memory(view: RankView, held: int) -> Fault:
    """A rank whose memory grows and grows; it holds `held` bytes by now."""
    line = int(view.look.get("line") or 0)
    message = f"rank {view.index} holds {held >> 20} MiB more than at its start"
    return Fault(
        "memory",
        message,
        (view.index,),
        line,
        (_last_seen(view.index, view.look),),
        "the inputs are small: what is kept, and why?",
    )


def of_disk(ranks: Sequence[RankView], written: int) -> Fault:
    """Files that grow and grow; ranks may share a folder, so it is not known whose they are."""
    looks = {view.index: view.look for view in ranks}
    return Fault(
        "disk",
        f"the run has written more than {written >> 20} MiB into its folder",
        tuple(looks),
        rows=tuple(_last_seen(rank, look) for rank, look in looks.items()),
        cause="the inputs are small: what is written, and why?",
    )


def of_threads(view: RankView, found: int, limit: int) -> Fault:
    """A rank that starts threads without end."""
    return Fault(
        "threads",
        f"rank {view.index} runs {found} threads; {limit} are the most",
        (view.index,),
        int(view.look.get("line") or 0),
        (_last_seen(view.index, view.look),),
        "are threads started inside an endless loop?",
    )


def of_stopped(halted: Sequence[RankView]) -> Fault:
    """Ranks that SIGSTOP keeps from running."""
    ranks = tuple(view.index for view in halted)
    verb = "was" if len(ranks) == 1 else "were"
    return Fault(
        "stopped",
        f"{autopsy.names(ranks)} {verb} stopped by a signal (SIGSTOP) and did not go on",
        ranks,
        int(halted[0].look.get("line") or 0),
        tuple(_last_seen(view.index, view.look) for view in halted),
        "a process that stops itself is woken by nobody: wait for the other ranks by a call",
    )


def of_flood(view: RankView, limit: int) -> Fault:
    """A rank that prints without end."""
    line = int(view.look.get("line") or 0)
    rows = (f"line {line}: {view.look['source']}",) if line else ()
    return Fault(
        "flood",
        f"rank {view.index} printed more than {limit >> 20} MiB",
        (view.index,),
        line,
        rows,
        "is a print inside an endless loop?",
    )


def of_cpu(busy: Sequence[RankView], limit: float, seconds: float) -> Fault:
    """Ranks that have used up their processor time, or that got less of it in `seconds`."""
    ranks = tuple(view.index for view in busy)
    rows = tuple(_last_seen(view.index, view.look) for view in busy)
    verb = "has" if len(ranks) == 1 else "have"
    used = f"{verb} used {limit:g} s of processor time without an answer"
    most = max(view.used() for view in busy)
    if most < limit:
        used = (
            f"{verb} used {most:.1f} s of processor time in {seconds:.0f} s on this busy "
            "machine, without an answer"
        )
    return Fault(
        "cpu",
        f"{autopsy.names(ranks)} {used}",
        ranks,
        int(busy[0].look.get("line") or 0),
        rows,
        "does the loop ever end?",
    )


def of_wall(reports: Mapping[int, dict[str, Any]], limit: float) -> Fault:
    """A run that does not end, and that is not certainly standing still."""
    running = [rank for rank, report in reports.items() if report["state"] == "running"]
    rows = tuple(_last_seen(rank, reports[rank]) for rank in running)
    message = f"{autopsy.names(running)} gave no answer in {limit:g} s"
    return Fault("wall", message, tuple(running), rows=rows)


def of_stuck(found: Deadlock | Difference, reports: Mapping[int, dict[str, Any]]) -> Fault:
    """What the judge's switch has found; ranks have said where they are, as far as they could."""
    waiting = found.stuck if isinstance(found, Deadlock) else found.meeting.posts
    said = {}
    for rank, report in reports.items():
        said[rank] = {"line": 0, "source": "", **report}
        if report["state"] == "running" and rank in waiting and not report.get("talking"):
            said[rank] |= {"talking": True, "call": found.call(rank)}
    if isinstance(found, Deadlock) or found.kind == "operation":
        return of_deadlock(said)
    rows = tuple(row.strip() for rank in sorted(said) for row in autopsy.table({rank: said[rank]}))
    line = next((int(said[rank].get("line") or 0) for rank in found.ranks), 0)
    return Fault("mismatch", found.text, found.ranks, line, rows, FIT.get(found.kind, ALIKE))


def of_deadlock(reports: Mapping[int, dict[str, Any]]) -> Fault:
    """Ranks that wait for each other, one line each."""
    rows = []
    for rank in sorted(reports):
        rows += [
            row.strip().removesuffix("the cell").rstrip()
            for row in autopsy.table({rank: reports[rank]})
        ]
    waiting = tuple(r for r, report in reports.items() if report["state"] == "running")
    line = int(reports[waiting[0]].get("line") or 0)
    return Fault(
        "deadlock",
        "the ranks wait for each other and nothing moves",
        waiting,
        line,
        tuple(rows),
        autopsy.explain(reports),
    )


def _last_seen(rank: int, look: Mapping[str, Any]) -> str:
    if not look.get("line"):
        return f"rank {rank}: not seen in your file"
    return f"rank {rank}: last seen in line {look['line']}: {look['source']}"
