"""The quorum trainer beside torchft and torchrun's elastic restart, under the same random failures.

Four real ranks train the model of `failures`, whose step takes 50 ms; kills and freezes come as a
Poisson process, one every six seconds on average, and a rank is away for one. A rank counts as lost
when it is silent for a second, with ours and with torchft, whose replica groups have one rank each
and are forked from a process with torch imported, as ours are. Ours also sees that a connection is
closed, as a kill does it; torchft waits for the heartbeat. torchrun saves a checkpoint every ten
steps, and each of its restarts imports torch in four processes. It starts killed ranks at once, not
after they were away, and failures that come while it starts are left out. The ways take turns.

Time lost is 1 - goodput as in `failures`: a batch that counted is worth an undisturbed step of
ours. `lost to failures` is the same with the run's own median step, so that neither a slower step
nor a busier machine counts. `no step kept` is the time, a failure, between two steps that counted,
less a step; `return` that from the end of a failure to the end of the rank's next step that
counted; both are medians over all seeds. Batches in vain are those begun that did not count in the
end. The weights are compared with those of one process on the batches that counted. torchft needs
an interpreter with torch and torchft or torchft-nightly (`pip install torchft-nightly`):
COURSE_PEERS_PYTHON names it. COURSE_WRITE names a file for the recording that lesson 17 draws.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.failures import SIZE, STEP, Waits
from benchmarks.peers.disturbed import made, torchft, torchrun
from benchmarks.results import machine
from benchmarks.row import Row
from course_lib.failures import (
    Fault,
    Limits,
    Record,
    goodput,
    one_process,
    random_faults,
    survive,
)
from course_lib.ranks import ForkServer

RANKS, STEPS, CALM = 4, 400, 60
EVERY, AWAY, SEEDS = 6.0, 1.0, (0, 1, 2)
SILENT, SAVED = 1.0, 10
VERSION = """
import importlib.metadata as m, torchft
print(next(d.version for d in m.distributions() if d.name in ("torchft", "torchft-nightly")))
"""
Way = Callable[[Path, Sequence[Fault], int], Record]


class Told(Waits):
    """The model, which writes down what it begins, as a peer's rank does."""

    def __init__(self, log: str) -> None:
        super().__init__()
        self.log = log

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        """Of a batch."""
        line = json.dumps({"say": "batch", "batch": batch, "time": time.monotonic()}) + "\n"
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)
        return super().gradient(batch)


@dataclass
class Found:
    """What one way gave, over all seeds.

    Attributes:
        name: whose it is, with its version.
        step: seconds of a step that nothing disturbed.
        records: one a seed.
        vain: batches in vain, a seed.
        gap: the largest difference of any weight from one process's.
    """

    name: str
    step: float
    records: list[Record] = field(default_factory=list)
    vain: list[int] = field(default_factory=list)
    gap: float = 0.0

    def lost(self, place: int, step: float | None = None) -> float:
        """The share of the paid time that is lost in one run; by default to failures alone."""
        record = self.records[place]
        return 1 - goodput(record.spans(step or usual(record)), RANKS)

    def over_failures(self, measure: Callable[[Record], list[float]]) -> list[float]:
        """A number for each failure of all seeds."""
        return [each for record in self.records for each in measure(record)]


# --- what is measured ----------------------------------------------------------------------------
def usual(record: Record) -> float:
    """Seconds of the median step: failures touch few of them."""
    return statistics.median(step.end - step.begin for step in record.counted)


def struck(record: Record, kind: str) -> list[tuple[float, float, int]]:
    """The failures of a kind: when, when it was over, and the rank."""
    found = []
    for happened in record.happenings:
        if happened.what == kind:
            over = [h.time for h in record.happenings if h.rank == happened.rank
                    and h.what == "over" and h.time >= happened.time]  # fmt: skip
            if over:
                found.append((happened.time, over[0], happened.rank))
    return found


def no_step_kept(kind: str, record: Record) -> list[float]:
    """Seconds between the step that counted before a failure and the next, less a step."""
    step = usual(record)
    ends = [0.0, *(counted.end for counted in record.counted)]
    found = []
    for when, _, _ in struck(record, kind):
        found += [after - end - step for end, after in pairwise(ends) if end <= when < after]
    return found


def to_return(kind: str, record: Record) -> list[float]:
    """Seconds from the end of a failure to the end of the rank's next step that counted."""
    found = []
    for _, over, rank in struck(record, kind):
        ends = [step.end for step in record.counted if rank in step.batches and step.begin > over]
        found += [ends[0] - over] if ends else []
    return found


def checked(record: Record) -> float:
    """The gap to one process.

    Raises:
        AssertionError: ranks differ, or a batch counted twice.
    """
    batches = record.batches
    assert len(set(batches)) == len(batches)
    exact: torch.Tensor = one_process(lambda: Waits(0.0), record.counted).weights()
    first, *others = record.states.values()
    assert all(other.equal(first) for other in others)
    return (first - exact).abs().max().item()


# --- the ways ------------------------------------------------------------------------------------
def ours(server: ForkServer, folder: Path, faults: Sequence[Fault], steps: int) -> Record:
    """The quorum."""
    limits = Limits(silent=SILENT, stuck=20.0)
    log = str(folder / "log")
    record = survive(partial(Told, log), RANKS, RANKS * steps, faults, limits, server=server)
    record.states = {rank: state[0] for rank, state in record.states.items()}
    return record


def settings(steps: int) -> dict[str, Any]:
    """What a peer's ranks have to know."""
    return {"ranks": RANKS, "batches": RANKS * steps, "step": STEP, "size": SIZE,
            "silent": SILENT, "every": SAVED}  # fmt: skip


def beside(python: str, folder: Path, faults: Sequence[Fault], steps: int) -> Record:
    """The peer torchft."""
    return torchft(folder, python, faults, **settings(steps))


def again(folder: Path, faults: Sequence[Fault], steps: int) -> Record:
    """The peer torchrun."""
    return torchrun(folder, faults, **settings(steps))


def version() -> tuple[str, str, str]:
    """The interpreter that has torchft, its version, and why there is none."""
    python = os.environ.get("COURSE_PEERS_PYTHON")
    if not python:
        return "", "", "not measured: COURSE_PEERS_PYTHON names no interpreter with torchft"
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1]
        return "", "", f"not measured: no torchft in COURSE_PEERS_PYTHON ({why})"
    return python, done.stdout.strip(), ""


def measured(ways: dict[str, Way]) -> dict[str, Found]:
    """All ways by turns, undisturbed first."""
    found = {}
    for name, way in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            calm = way(Path(folder), (), CALM)
        found[name] = Found(name, usual(calm))
    for seed in SEEDS:
        faults = random_faults(RANKS, EVERY, 3600.0, AWAY, seed, ("kill", "freeze"))
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                record = way(Path(folder), faults, STEPS)
                vain = made(Path(folder) / "log") - len(record.batches)
            found[name].records.append(record)
            found[name].vain.append(vain)
            found[name].gap = max(found[name].gap, checked(record))
    return found


# --- rows ----------------------------------------------------------------------------------------
def rows() -> Iterator[Row]:
    """For each peer a row a seed, and one for each of the other numbers."""
    python, which, why = version()
    with ForkServer() as server:
        ways: dict[str, Way] = {"ours": partial(ours, server)}
        if python:
            ways[f"torchft {which}"] = partial(beside, python)
        ways["torchrun"] = again
        found = measured(ways)
    mine, *peers = found.values()
    for peer in peers:
        yield from compared(mine, peer)
    if why:
        lost = mine.lost(0, mine.step)
        yield Row("fault_tolerance", "time lost", RANKS, SIZE * 8, lost, None, "torchft", "share",
                  why)  # fmt: skip
    if "COURSE_WRITE" in os.environ:
        Path(os.environ["COURSE_WRITE"]).write_text(json.dumps(recording(found)) + "\n")


def compared(mine: Found, peer: Found) -> Iterator[Row]:
    """Rows of ours and one peer."""

    def row(what: str, ours: float, theirs: float, unit: str, note: str = "") -> Row:
        return Row("fault_tolerance", what, RANKS, SIZE * 8, ours, theirs, peer.name, unit, note)

    load = os.getloadavg()[2]  # over the last quarter of an hour: who else computes here
    note = (
        f"weights {mine.gap:.0e} and {peer.gap:.0e} from one process's; "
        f"load {load:.0f} on {os.cpu_count()} cores"
    )
    yield row("step, undisturbed", mine.step * 1e3, peer.step * 1e3, "ms", note)
    for place, seed in enumerate(SEEDS):
        records = mine.records[place], peer.records[place]
        each = [len(struck(r, "kill")) + len(struck(r, "freeze")) for r in records]
        note = (
            f"{records[0].seconds:.0f} and {records[1].seconds:.0f} s; "
            f"{each[0]} and {each[1]} failures"
        )
        lost = [found.lost(place, mine.step) for found in (mine, peer)]
        yield row(f"time lost, seed {seed}", lost[0], lost[1], "share", note)
        yield row(f"lost to failures, seed {seed}", mine.lost(place), peer.lost(place), "share")
    counts = [len(f.over_failures(failures)) for f in (mine, peer)]
    vain = [sum(f.vain) / count for f, count in zip((mine, peer), counts, strict=True)]
    note = f"{counts[0]} and {counts[1]} failures"
    yield row("batches in vain, a failure", vain[0], vain[1], "batches", note)
    for kind in ("kill", "freeze"):
        for what in ("no step kept", "return"):
            ours, theirs = (spread(f, what, kind) for f in (mine, peer))
            note = f"medians of {len(ours)} and {len(theirs)}"
            if ours and theirs:
                middle, other = statistics.median(ours), statistics.median(theirs)
                yield row(f"{what}, a {kind}", middle, other, "s", note)


def failures(record: Record) -> list[float]:
    """When each was."""
    return [when for kind in ("kill", "freeze") for when, _, _ in struck(record, kind)]


def spread(found: Found, what: str, kind: str) -> list[float]:
    """All values of a number."""
    if what == "return":
        return found.over_failures(partial(to_return, kind))
    return found.over_failures(partial(no_step_kept, kind))


def recording(found: dict[str, Found]) -> dict[str, Any]:
    """What the lesson draws: the numbers of each way, and the first seed's rooms."""
    ways, step = {}, found["ours"].step
    for name, each in found.items():
        record, places = each.records[0], range(len(SEEDS))
        ways[name] = {
            "step": each.step, "lost": [each.lost(place, step) for place in places],
            "lost to failures": [each.lost(place) for place in places],
            "failures": len(each.over_failures(failures)), "vain": sum(each.vain), "gap": each.gap,
            "stop": {kind: spread(each, "no step kept", kind) for kind in ("kill", "freeze")},
            "return": {kind: spread(each, "return", kind) for kind in ("kill", "freeze")},
            "spells": [[rank, round(b, 3), round(e, 3), what]
                       for rank, b, e, what in record.spells()],
            "steps": [[round(step.end, 3), len(step.batches)] for step in record.counted],
        }  # fmt: skip
    return {"machine": machine(), "ranks": RANKS, "ways": ways}
