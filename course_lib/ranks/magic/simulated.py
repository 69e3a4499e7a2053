"""A cell on simulated ranks: the same names and records, in virtual time, in this process."""

from __future__ import annotations

import ast
import traceback
from types import CodeType
from typing import Any

from course_lib.comm import Group
from course_lib.ranks.pool.outcome import Outcome


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
    from course_lib.cluster import Deadlocked, Failed, simulate

    outcome = Outcome(device=f"simulated {cluster}")
    body, last = _compiled(source, name)

    def program(group: Group) -> None:
        names = _names(group, outcome)
        exec(body, names)
        if last is not None and (value := eval(last, names)) is not None:
            names["print"](repr(value))

    try:
        found = simulate(program, world_size, cluster=cluster, equal=equal)
    except Deadlocked as error:
        outcome.verdict, outcome.ledgers = "deadlock", error.ledgers
        outcome.reports = error.reports()
    except Failed as error:
        outcome.verdict, cause = "raised", error.cause
        trace = "".join(traceback.format_exception(cause))
        outcome.reports = {
            error.rank: {"state": "raised", "error": str(cause), "trace": trace, "line": 0}
        }
    else:
        outcome.ledgers = found.ledgers
        outcome.reports = {rank: {"state": "finished"} for rank in found.ledgers}
    return outcome


def _names(group: Group, outcome: Outcome) -> dict[str, Any]:
    """What a cell finds on each rank. What it prints is kept by rank, since ranks take turns."""
    import torch

    said = outcome.output.setdefault(group.rank, bytearray())

    def say(*values: Any, sep: str = " ", end: str = "\n", **_: Any) -> None:
        said.extend((sep.join(map(str, values)) + end).encode())

    return {
        "__name__": "__main__",
        "rank": group.rank,
        "world_size": group.size,
        "device": group.device,
        "group": group,
        "torch": torch,
        "print": say,
    }


def _compiled(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    """The cell, and apart from it the expression that it ends with."""
    tree = ast.parse(source, name)
    shown = None
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        tree.body.pop()
        shown = compile(ast.Expression(last.value), name, "eval")
    return compile(tree, name, "exec"), shown
