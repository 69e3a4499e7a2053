"""The numbers that the course set itself, and what RESULTS.md holds against each; misses with why.

Nothing is measured here: each goal reads the worst of its rows in the other sections, so a
section that is written anew changes it. `ours` is that worst number, `peer` the goal, and a ratio
above 1 is a miss, whose note says why. Where the unit is `×`, the number is the ratio to the peer
of that section. How long `make test` and the notebooks take is not here: CI's log says it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import results
from benchmarks.row import HEAD, Row

Cells = dict[str, str]


@dataclass(frozen=True)
class Goal:
    """A number to reach.

    Attributes:
        text: what it is about.
        bench: the section with its rows.
        what: a pattern that the whole of a row's `what` matches.
        most: the largest number that is good.
        column: `ratio`, or `ours` for a number with a unit.
        where: which of those rows count.
        why: what was tried, for a goal that is missed.
    """

    text: str
    bench: str
    what: str
    most: float
    column: str = "ratio"
    where: Callable[[Cells], bool] = lambda row: True
    why: str = ""


def against(peer: str) -> Callable[[Cells], bool]:
    """Rows whose peer's name begins with `peer`."""
    return lambda row: row["peer is"].startswith(peer)


def at_least(mebibytes: int) -> Callable[[Cells], bool]:
    """Rows of tensors of at least so many MiB."""
    return lambda row: row["size"].endswith("MiB") and int(row["size"].split()[0]) >= mebibytes


def small(row: Cells) -> bool:
    """Rows of tensors of 4 to 64 KiB."""
    return row["size"] in ("4 KiB", "16 KiB", "64 KiB")


POOL = (
    "ranks share the pages of the preloaded process, whose objects are frozen before forks; what "
    "is left is that process, which ipyparallel does not have, and the pages that each rank "
    "touches: counts of references, gloo"
)
RING = (
    "tried: pieces of 256 KiB to 2 MiB, two or four posted ahead; 1 MiB and two is best on 2 "
    "ranks, 2 MiB 5 % better on 4. Torch adds what has come after it came, gloo inside its own "
    "loop; on 2 ranks no other message hides that"
)
STEPS = (
    "4 ranks on 2 cores, so a step costs what it computes: of 100 ms of processor time a rank, "
    "forward and backward without communication are 76 on both sides. On top of these and of the "
    "update, DDP costs 15 ms, torch's 12: hooks in Python, about 50 microseconds a gradient. "
    "ZeRO-1 costs 20 with the update, torch's 24; FSDP 42 with the update, FSDP2 61. Tried: no "
    "zeros below gradients that are copied anyway, no texts for a comparison (nothing to measure)"
)
FORKS = (
    "9 runs on 25 processes, each of which is forked, meets the others, copies the pages that it "
    "touches and ends. Tried: modules imported before the fork, one seed, records without copies "
    "(8 % less, side by side). Checks that share processes would cost less, and could disturb "
    "each other"
)
ROUND_TRIP = (
    "the kernel takes 1 to 10 ms of it; the rest is the way there and back over the server's "
    "socket, ipywidgets and the browser, which draws without a GPU here. Tried: style rules once "
    "and not with each picture (median 6 ms less)"
)
LOST = (
    "a failure costs the limit after which a silent rank is given up, and a step without it; "
    "with a shorter limit a rank on a busy machine is given up that only waits for a processor"
)
GOALS = (
    Goal("start of 4 ranks, preloaded, by torchrun's", "launch", "start", 0.05),
    Goal("start of 4 ranks, cold, by torchrun's", "launch", "start_cold", 1.0),
    Goal("warm cell by a local cell", "launch", "warm_cell_ms_p50", 2.0, where=against("a local")),
    Goal("warm cell by ipyparallel's", "launch", "warm_cell_ms_p50", 0.5, where=against("ipy")),
    Goal("warm cell by nbdistributed's", "launch", "warm_cell_ms_p50", 0.13, where=against("nbd")),
    Goal("deadlock to autopsy, after its limit", "launch", "deadlock_s", 3.0, "ours"),
    Goal("interrupt to prompt", "launch", "interrupt_s|interrupt_deadlock_s", 1.0, "ours"),
    Goal("dead rank to report", "launch", "dead_rank_s", 1.0, "ours"),
    Goal("memory of a pool by ipyparallel's", "launch", "pool_memory", 0.25,
         where=against("ipy"), why=POOL),
    Goal("pulling 64 MiB by ipyparallel's", "launch", "pull_64MiB_s", 0.5, where=against("ipy")),
    Goal("restart after a dead rank", "launch", "restart_s", 1.0, "ours"),
    Goal("ring all-reduce from 1 MiB by gloo's", "collectives", "all_reduce", 1.0,
         where=at_least(1), why=RING),
    Goal("all-reduce of 4 to 64 KiB by gloo's", "collectives", "all_reduce", 2.0, where=small),
    Goal("reduce-scatter + all-gather from 1 MiB by gloo's", "collectives", "reduce_scatter",
         0.67, where=at_least(1)),
    Goal("DDP step by torch's", "data_parallel", "ddp step", 1.05, why=STEPS),
    Goal("ZeRO-1 step by ZeroRedundancyOptimizer's", "data_parallel", "zero1 step", 0.9,
         why=STEPS),
    Goal("FSDP step by FSDP2's", "data_parallel", "fsdp.* step", 0.8, why=STEPS),
    Goal("bytes of data parallelism by torch's", "data_parallel", ".* sent", 1.0),
    Goal("peaks of data parallelism by torch's", "data_parallel", ".* peak", 1.0),
    Goal("TP step by DTensor's", "model_parallel", "[ts]p step", 0.8),
    Goal("pipeline step, worst schedule, by torch's", "model_parallel",
         "(gpipe|1f1b|interleaved|zb-h1|zb-v|dualpipe-v) step", 1.0),
    Goal("peaks of model parallelism by torch's", "model_parallel", ".* peak", 1.0),
    Goal("sharded save and load by torch's", "checkpoint", "save|load", 1.0),
    Goal("bytes of a checkpoint by torch's", "checkpoint", "on the disk", 1.0),
    Goal("an exercise graded, warm, median", "grading", "grade_s_p50", 1.0, "ours", why=FORKS),
    Goal("an exercise graded, warm, p95", "grading", "grade_s_p95", 2.0, "ours"),
    Goal("an exercise graded, cold", "grading", "grade_cold_s_p50", 6.0, "ours"),
    Goal("a class of 200, a hand-in", "grading", "class_s", 1.5, "ours"),
    Goal("move of a stepper, p95", "browser", "stepper.*_p95", 20.0, "ours"),
    Goal("move of an explorer, p95", "browser", "explorer.*_p95", 50.0, "ours", why=ROUND_TRIP),
    Goal("frames dropped under a held key", "browser", "held key.*", 0.0, "ours"),
    Goal("time that a quorum loses to failures", "failures", "time lost.*", 0.05, "ours", why=LOST),
    Goal("100 000 GPUs planned", "plan", "all layouts planned", 10.0, "ours"),
    Goal("70B on 512 simulated GPUs", "simulated", "70B step, time", 60.0, "ours"),
    Goal("70B on 512 simulated GPUs, memory", "simulated", "70B step, memory", 4000.0, "ours"),
    Goal("405B on 16 384 simulated GPUs", "simulated", "405B step, time", 300.0, "ours"),
)  # fmt: skip


def parsed(section: str) -> list[Cells]:
    """The rows of a section's table, cells by the names of their columns."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return [dict(zip(HEAD, row, strict=True)) for row in cells]


def worst(goal: Goal, sections: dict[str, str]) -> Cells | None:
    """The row that is furthest from the goal; None if nothing was measured."""
    rows = [
        row for row in parsed(sections.get(goal.bench, ""))
        if re.fullmatch(goal.what, row["what"]) and row[goal.column] and goal.where(row)
    ]  # fmt: skip
    return max(rows, key=lambda row: float(row[goal.column]), default=None)


def rows() -> Iterator[Row]:
    """A row for each goal that something was measured for."""
    sections = results.read()
    for goal in GOALS:
        row = worst(goal, sections)
        if row:
            found = float(row[goal.column])
            unit = "×" if goal.column == "ratio" else row["unit"]
            place = ", ".join(filter(None, (row["what"], row["world"] + " ranks", row["size"])))
            missed = found > goal.most
            note = f"missed by {place}: {goal.why}" if missed else ""
            yield Row("goals", goal.text, int(row["world"]), 0, found, goal.most, "the goal",
                      unit, note)  # fmt: skip
