"""A cell on simulated ranks: the same names and records, in virtual time, in this process."""

from __future__ import annotations

import io
import linecache
from pathlib import Path
from typing import Any

from course_lib.comm import Group
from course_lib.ranks.pool.outcome import Outcome
from course_lib.ranks.rank_process.show import HIDDEN, own_line, own_traceback
from course_lib.ranks.rank_process.source import run_source

# Frames that are not the reader's: the simulator's own, and of what is too large all of the course.
COURSE = str(Path(__file__).parents[2])
SIMULATOR = (*HIDDEN, __file__, str(Path(COURSE) / "cluster"))


def simulated_cell(
    source: str, name: str, world_size: int, cluster: str, equal: str = ""
) -> Outcome:
    """Runs source code on every distinct rank of a simulated cluster.

    Args:
        source: Python; its last expression is shown.
        name: stands as the file name in tracebacks.
        world_size: how many ranks.
        cluster: as `64x8xH100`.
        equal: which ranks do the same, as `pp8,dp8*,tp8*`.

    Returns:
        How it ended, with the ledgers of all ranks that were run.

    Raises:
        Refusal: there is no such cluster, or it is too small.
    """
    import torch

    from course_lib.cluster import Deadlocked, Failed, OutOfMemory, simulate

    outcome = Outcome(device=f"simulated {cluster}")
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)

    def program(group: Group) -> None:
        names = _names(group, outcome)
        if (value := run_source(source, name, names)) is not None:
            names["print"](repr(value))

    try:
        found = simulate(program, world_size, cluster=cluster, equal=equal)
    except Deadlocked as error:
        outcome.verdict, outcome.ledgers = "deadlock", error.ledgers
        outcome.reports = error.reports()
    except OutOfMemory as error:
        outcome.verdict = "raised"
        hidden = (COURSE, str(Path(torch.__file__).parent))
        outcome.reports = {error.rank: _report(error, hidden)}
    except Failed as error:
        outcome.verdict = "raised"
        outcome.reports = {error.rank: _report(error.cause, SIMULATOR)}
    else:
        outcome.ledgers = found.ledgers
        outcome.reports = {rank: {"state": "finished"} for rank in found.ledgers}
        outcome.displays.append((0, {"text/plain": found.summary()}))
    return outcome


def _report(error: BaseException, hidden: tuple[str, ...]) -> dict[str, Any]:
    """What became of a rank whose program raised."""
    trace, line = own_traceback(error, hidden), own_line(error)
    return {"state": "raised", "error": str(error), "trace": trace, "line": line}


def _names(group: Group, outcome: Outcome) -> dict[str, Any]:
    """What a cell finds on each rank. What it prints is kept by rank, since ranks take turns."""
    import torch

    from course_lib import comm

    said = outcome.output.setdefault(group.rank, bytearray())

    def say(*values: Any, **options: Any) -> None:
        text = io.StringIO()
        print(*values, **{**options, "file": text})
        said.extend(text.getvalue().encode("utf-8", "replace"))

    return {
        "__name__": "__main__",
        "rank": group.rank,
        "world_size": group.size,
        "device": group.device,
        "group": group,
        "torch": torch,
        "comm": comm,
        "print": say,
    }
