"""What can go wrong with a run other than a wrong result, as plain data with a name."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from typing import Any

# The file itself: nothing can be run, so one fault stands for the whole card.
LOAD = {
    "missing_file": "the file is missing",
    "refused_file": "the file is not taken",
    "syntax": "not valid Python",
    "import": "the file raises an exception when it is imported",
    "no_function": "the file does not define what was asked",
    "borrowed_import": "an import that this exercise does not allow",
}
KINDS = {
    **LOAD,
    "not_written": "not written yet",
    "borrowed": "what this exercise does not allow",
    "exception": "exception",
    "exit": "the process was ended",
    "killed": "the process was killed",
    "stopped": "the process was stopped",
    "cpu": "infinite loop, or far too slow",
    "wall": "no answer in time",
    "deadlock": "deadlock",
    "mismatch": "calls that do not fit",
    "memory": "out of memory",
    "disk": "too much written to the disk",
    "flood": "output flood",
    "process": "started another process",
    "network": "went out to the network",
    "refused": "something that an answer may not do",
    "threads": "threads left running",
    "tampering": "tampering with the grader",
    "skipped": "not run",
}
# After two of these in one grading the rest is not run: each costs the whole budget.
EXPENSIVE = ("cpu", "wall", "memory")


@dataclass(frozen=True)
class Fault:
    """One fault of a run.

    Attributes:
        kind: one of KINDS.
        message: what happened, in a sentence that names rank and line.
        ranks: where.
        line: the learner's line, or 0.
        rows: further lines, such as where each rank waits.
        cause: why, or what to do.
    """

    kind: str
    message: str
    ranks: tuple[int, ...] = ()
    line: int = 0
    rows: tuple[str, ...] = ()
    cause: str = ""

    @property
    def title(self) -> str:
        """The kind in words."""
        return KINDS[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """The fault as JSON-ready data."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Fault:
        """The fault that `to_dict` made `data` of."""
        return Fault(**{**data, "ranks": tuple(data["ranks"]), "rows": tuple(data["rows"])})


class RunFault(Exception):
    """A run that ended in a fault instead of a result.

    Args:
        fault: which.
        output: the last lines that the learner's code printed.
    """

    def __init__(self, fault: Fault, output: str = "") -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.output = output


def ended(status: int, rank: int) -> Fault:
    """The fault of a rank whose process ended without an answer, from its exit status."""
    where = f"rank {rank}"
    if status >= 0:
        return Fault(
            "exit",
            f"{where} ended its process with code {status} before the function returned",
            (rank,),
            cause="os._exit ends the process at once; a function returns or raises",
        )
    if -status == signal.SIGXCPU:
        return Fault("cpu", f"{where} used all its processor time", (rank,))
    name = signal.Signals(-status).name
    return Fault("killed", f"{where} was killed by {name}", (rank,))
