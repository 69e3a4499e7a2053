"""How a cell or a call on ranks ended, as data and in words."""

from __future__ import annotations

import signal
import textwrap
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from course_lib.ranks.pool import autopsy
from course_lib.trace import FlightLog, Ledger, Timeline, find_desync

DIFFERENT = ("operation", "dtype", "shape", "root")  # findings on calls that do not agree
MOST_DISPLAYS = 100  # of one rank in one cell
WIDTH = 96  # characters that JupyterLab shows in a line of output on a small screen


class RanksError(RuntimeError):
    """A cell or a function that did not end well on every rank.

    Attributes:
        outcome: how it ended, rank by rank.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.story())
        self.outcome = outcome

    def __reduce__(self) -> Any:
        return RanksError, (self.outcome,)


@dataclass
class Outcome:
    """How one cell or call ended.

    Attributes:
        reports: rank to what became of it: `state` is `finished`, `raised`, `interrupted`,
            `killed`, `stopped` (by SIGSTOP), or `running` if it had to be ended; with `line`,
            `error`, `trace`, ...
        output: rank to the bytes it printed.
        displays: (rank, MIME bundle) in the order of arrival; of a rank's many only the first, and
            how many more there were.
        ledgers: rank to its ledger of this cell, if it was asked for.
        operations: rank to what it has recorded of its operations, if types were asked for:
            `course_lib.spmd.types_of` reads them.
        values: rank to the value that came back.
        flight_logs: the last calls of each rank that could still tell them, if ranks had to be
            given up: `find_desync(outcome.flight_logs)` says where they parted.
        calls: rank to the calls on world that its backend has counted since it started.
        device: where the ranks compute, if they said so.
        verdict: "" if all finished; else `raised`, `deadlock`, `timeout`, `died`, `stopped`,
            `interrupted`; `mismatch`, if all finished, but calls were not the same on their ranks.
        mismatch: what was not the same, in one sentence.
        restarted: why the ranks had to be started again; "" if they go on.
        broken: what the cell has done to its ranks so that they cannot run another; "" if nothing.
        waits: while it runs, who has waited long for whom; "" if nobody has.
    """

    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    output: dict[int, bytearray] = field(default_factory=dict)
    displays: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    operations: dict[int, dict[str, Any]] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    flight_logs: list[FlightLog] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    device: str = ""
    verdict: str = ""
    mismatch: str = ""
    restarted: str = ""
    broken: str = ""
    waits: str = ""
    _more: dict[int, int] = field(default_factory=dict)

    def show(self, rank: int, bundle: dict[str, str]) -> None:
        """Takes what a rank displays."""
        own = [shown for shown_by, shown in self.displays if shown_by == rank][: MOST_DISPLAYS + 1]
        if len(own) < MOST_DISPLAYS:
            self.displays.append((rank, bundle))
            return
        self._more[rank] = self._more.get(rank, 0) + 1
        if len(own) == MOST_DISPLAYS:
            own.append({})
            self.displays.append((rank, own[-1]))
        own[-1]["text/plain"] = f"… {self._more[rank]:,} more displays …"

    def take(self, rank: int, message: dict[str, Any]) -> None:
        """Keeps what a rank brings back of what was asked for: its ledger, its operations."""
        if message.get("ledger"):
            self.ledgers[rank] = Ledger.from_dict(message["ledger"])
        if message.get("types"):
            self.operations[rank] = message["types"]

    def timeline(self) -> Timeline:
        """The ledgers of all ranks of this cell."""
        return Timeline(self.ledgers.values())

    def story(self) -> str:
        """What went wrong, for people; "" if nothing did."""
        lines = self._headline()
        lines += [text for trace in self._traces() for text in trace]
        if self.restarted:
            lines.append(self.restarted)
        return "\n".join(lines)

    def _headline(self) -> list[str]:
        if self.verdict == "died":
            dead = [r for r, report in self.reports.items() if report["state"] == "killed"]
            each = "; ".join(f"rank {r} {self.reports[r]['error']}" for r in dead)
            refused = any(autopsy.OTHER_SIZE in self.reports[rank]["error"] for rank in dead)
            sizes = autopsy.sizes(self._ended()) if refused else ""
            parted = f"The sizes differ: {sizes}." if sizes else self._parted()
            return [f"A rank ended: {each}.", *filter(None, [parted]), *autopsy.table(self.reports)]
        if self.verdict == "stopped":
            halted = [r for r, report in self.reports.items() if report["state"] == "stopped"]
            verb = "was" if len(halted) == 1 else "were"
            head = f"{autopsy.names(halted)} {verb} stopped by a signal (SIGSTOP) and did not go on"
            return [f"{head[0].upper()}{head[1:]}.", *autopsy.table(self.reports)]
        if self.verdict in ("deadlock", "timeout"):
            failed = any(report["state"] == "raised" for report in self.reports.values())
            head = "A rank failed" if failed else "Deadlock"
            head = "Time is up" if self.verdict == "timeout" else head
            stuck = any(report.get("talking") for report in self.reports.values())
            why = [autopsy.explain(self.reports), self._parted()] if stuck else []
            sentence = f"{head}. {' '.join(why)}".rstrip()
            return [*textwrap.wrap(sentence, WIDTH), *autopsy.table(self.reports)]
        if self.verdict == "mismatch":
            return textwrap.wrap(self.mismatch, WIDTH)
        if self.verdict == "interrupted":
            return ["Interrupted.", *autopsy.table(self.reports)]
        return []

    def _ended(self) -> dict[int, dict[str, Any]]:
        """The ranks that could not go on: those that died, that lost a peer, or that wait."""
        return {r: rep for r, rep in self.reports.items() if rep["state"] != "finished"}

    def _parted(self) -> str:
        """Where the ranks' calls first differed; "" if all wait just there: it is said already."""
        found = find_desync(self.flight_logs)
        if found is None or found.kind not in DIFFERENT:
            return ""
        waits = [log.waiting for log in self.flight_logs if log.rank in found.channel.ends]
        places = {(record.channel, record.seq) if record else None for record in waits}
        said = found.kind in ("operation", "shape") and places == {(found.channel, found.seq)}
        return "" if said else found.text

    def _traces(self) -> list[list[str]]:
        """Each different traceback once, with the ranks that raised it."""
        same: dict[str, list[int]] = {}
        for rank, report in sorted(self.reports.items()):
            if report["state"] == "raised" and not autopsy.lost_peer(report):
                same.setdefault(report["trace"].strip(), []).append(rank)
        return [[f"{autopsy.names(ranks)}:", trace] for trace, ranks in same.items()]


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "closed its channel"
    if status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"exited with code {status}"
