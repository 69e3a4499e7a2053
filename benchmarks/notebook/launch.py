"""`%%ranks` on 4 ranks in a real kernel, against torchrun, ipyparallel and nbdistributed.

Everything is felt from the kernel's client: from the request of a cell to its reply and to idle.
`start` is `%ranks 4` and a first all-reduce where the preloaded process is up, `start_cold` the
same with `%load_ext` in a kernel that has just started; the peer is torchrun on the same lines.
The kernels of all tools live at the same time and take turns. `warm_cell` is `y = 1` on all ranks;
its first peer is `y = 1` in the kernel itself. `deadlock_s` counts from the limit of 3 s,
`dead_rank_s` from the kill. `pool_memory` is PSS with all helpers, idle after an all-reduce, and
`pool_memory_trained` after one step of AdamW as well. Peers need an interpreter of their own, with
torch, ipyparallel, nbdistributed and ipykernel: COURSE_PEERS_PYTHON names it.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.notebook.kernel import CellFailed, Kernel
from benchmarks.peers.ipyparallel import ipyparallel
from benchmarks.peers.nbdistributed import nbdistributed
from benchmarks.peers.ours import OURS
from benchmarks.peers.way import FIRST, Way
from benchmarks.row import Row

WORLD = 4
STARTS = 3  # fresh kernels, and runs of torchrun
TURNS, CELLS = 12, 15  # turns of each tool, and cells in a turn
FAULTS = 3  # repetitions of each fault
LIMIT = 3.0  # seconds that ranks may stand still
BIG = "big = torch.arange(16 * 2**20, dtype=torch.float32)"
STEP = (
    "m = torch.nn.Linear(8, 8); o = torch.optim.AdamW(m.parameters())\n"
    "m(torch.ones(2, 8)).sum().backward(); o.step()"
)
SCRIPT = (
    "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    f"{FIRST}\ndist.barrier()\ndist.destroy_process_group()\n"
)


@dataclass
class Measured:
    """What one tool gave, in seconds and MB."""

    name: str
    cells: list[float] = field(default_factory=list)
    local: list[float] = field(default_factory=list)
    pulls: list[float] = field(default_factory=list)
    memory: float = 0.0
    trained: float = 0.0
    restart: float = 0.0


# --- start ---------------------------------------------------------------------------------------
def first_sum(kernel: Kernel, way: Way) -> None:
    """Starts the ranks and has them sum.

    Raises:
        CellFailed: not every rank had the sum.
    """
    for cell in way.start:
        kernel.must(cell)
    check_sum(kernel, way)


def check_sum(kernel: Kernel, way: Way) -> None:
    """One all-reduce on all ranks, checked by what they print."""
    text = kernel.must(way.on_all(FIRST)).text
    if f"sum {WORLD}" not in text:
        raise CellFailed(f"{way.name} printed {text!r}")


def start(preloaded: bool) -> float:
    """Seconds to the first sum in a fresh kernel."""
    with Kernel(OURS.python, OURS.env) as kernel:
        if preloaded:
            kernel.must(OURS.load)
            kernel.must("run_on_ranks(lambda group: None, 1)")
        begin = time.perf_counter()
        if not preloaded:
            kernel.must(OURS.load)
        first_sum(kernel, OURS)
        return time.perf_counter() - begin


def torchrun() -> float:
    """Seconds until all ranks of a fresh torchrun have printed the sum."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={WORLD}", str(script)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                 "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        printed = sum(1 for line, _ in zip(process.stdout, range(WORLD), strict=False) if line)
        seconds = time.perf_counter() - begin
        process.communicate()
        if printed != WORLD:
            raise CellFailed(f"torchrun ended with {process.returncode} after {printed} lines")
        return seconds


def start_rows() -> Iterator[Row]:
    """Ours and torchrun by turns."""
    warm, cold, theirs = [], [], []
    for _ in range(STARTS):
        warm.append(start(preloaded=True))
        theirs.append(torchrun())
        cold.append(start(preloaded=False))
    for what, times in (("start", warm), ("start_cold", cold)):
        note = f"medians of {STARTS}; ours {min(times):.2f} to {max(times):.2f}"
        yield row(what, statistics.median(times), statistics.median(theirs), "torchrun", "s", note)


# --- tools side by side --------------------------------------------------------------------------
def ways(folder: Path) -> tuple[list[Way], str]:
    """The tools that can be measured here, and why the others cannot."""
    python = os.environ.get("COURSE_PEERS_PYTHON")
    if not python:
        return [OURS], "not measured: COURSE_PEERS_PYTHON is not set"
    return [OURS, ipyparallel(python), nbdistributed(python, folder)], ""


def side_by_side() -> tuple[dict[str, Measured], dict[str, str]]:
    """Every tool's numbers by name, and the reasons of those that could not run."""
    found, missing = {}, {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        candidates, reason = ways(Path(folder))
        if reason:
            missing = {"ipyparallel": reason, "nbdistributed": reason}
        kernels: list[tuple[Way, Kernel]] = []
        for way in candidates:
            try:
                kernel = stack.enter_context(Kernel(way.python, way.env))
                kernel.must(way.load)
                first_sum(kernel, way)
            except (CellFailed, TimeoutError, RuntimeError) as error:
                missing[way.name] = f"not measured: {str(error).splitlines()[-1][:80]}"
                continue
            kernels.append((way, kernel))
            found[way.name] = Measured(way.name, memory=settled(kernel))
        for number in range(TURNS):
            for way, kernel in kernels if number % 2 else reversed(kernels):
                turn(way, kernel, found[way.name])
        for way, kernel in kernels:
            kernel.must(way.on_all(STEP))
            found[way.name].trained = settled(kernel)
            pull(way, kernel, found[way.name])
            found[way.name].restart = restart(way, kernel)
    return found, missing


def settled(kernel: Kernel) -> float:
    """MB once nothing starts or ends any more."""
    time.sleep(1)
    return kernel.memory()


def turn(way: Way, kernel: Kernel, measured: Measured) -> None:
    """Some cells in a row; in our kernel, local ones in between. The first does not count."""
    kernel.must(way.on_all("y = 1"))
    for _ in range(CELLS):
        measured.cells.append(kernel.must(way.on_all("y = 1")).seconds)
        if way is OURS:
            measured.local.append(kernel.must("y = 1").seconds)


def pull(way: Way, kernel: Kernel, measured: Measured) -> None:
    """64 MiB from rank 0; the first time does not count."""
    kernel.must(way.on_all(BIG))
    times = [kernel.must(way.pull).seconds for _ in range(6)]
    measured.pulls = times[1:]


def restart(way: Way, kernel: Kernel) -> float:
    """Seconds to a sum of all ranks, half a second after the last one was killed."""
    text = kernel.must(way.on_all("import os; print(f'PID {dist.get_rank()} {os.getpid()}')")).text
    found = re.search(rf"PID {WORLD - 1} (\d+)", text)
    assert found is not None
    os.kill(int(found[1]), signal.SIGKILL)
    time.sleep(0.5)
    begin = time.perf_counter()
    for cell in way.restart:
        kernel.run(cell)
    check_sum(kernel, way)
    return time.perf_counter() - begin


def cell_rows(found: dict[str, Measured]) -> Iterator[Row]:
    """The warm cell against a local one and against the peers'."""
    ours = found["ours"]
    peers = [("a local cell", ours.local)]
    peers += [(name, measured.cells) for name, measured in found.items() if name != "ours"]
    for what, share in (("warm_cell_ms_p50", 0.5), ("warm_cell_ms_p95", 0.95)):
        for name, times in peers:
            mine, theirs = quantile(ours.cells, share), quantile(times, share)
            note = f"{len(times)} cells each"
            yield row(what, mine * 1e3, theirs * 1e3, name, "ms", note)


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    order = sorted(values)
    return order[min(len(order) - 1, round(share * (len(order) - 1)))]


def tool_rows() -> Iterator[Row]:
    """All that is measured with the tools side by side."""
    found, missing = side_by_side()
    yield from cell_rows(found)
    ours = found["ours"]
    for name in ("ipyparallel", "nbdistributed"):
        peer, why = found.get(name), missing.get(name, "")
        for what, unit, value, other in (
            ("pool_memory", "MB", ours.memory, peer.memory if peer else None),
            ("pool_memory_trained", "MB", ours.trained, peer.trained if peer else None),
            ("pull_64MiB_s", "s", middle(ours), middle(peer) if peer else None),
            ("restart_s", "s", ours.restart, peer.restart if peer else None),
        ):
            size = 64 << 20 if what.startswith("pull") else 0
            yield row(what, value, other, name, unit, why, size)


def middle(measured: Measured) -> float:
    return statistics.median(measured.pulls)


# --- faults --------------------------------------------------------------------------------------
def fault_rows() -> Iterator[Row]:
    """From the fault to the prompt, with the story told. No peer gets there."""
    with Kernel(OURS.python, OURS.env) as kernel:
        kernel.must(OURS.load)
        first_sum(kernel, OURS)
        deadlocks = [
            failed(kernel, "if rank == 0:\n    dist.barrier()", "Deadlock.") - LIMIT
            for _ in range(FAULTS)
        ]
        yield row("deadlock_s", statistics.median(deadlocks), None, "", "s", "after its 3 s")
        loop = "import time\nwhile True:\n    time.sleep(0.01)"
        waits = "if rank == 0:\n    dist.barrier()"
        for what, body in (("interrupt_s", loop), ("interrupt_deadlock_s", waits)):
            times = [interrupted(kernel, body) for _ in range(FAULTS)]
            yield row(what, statistics.median(times), None, "", "s")
        dies = "import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()"
        times = [failed(kernel, dies, "rank 1 was killed by SIGKILL") for _ in range(FAULTS)]
        yield row("dead_rank_s", statistics.median(times), None, "", "s")


def failed(kernel: Kernel, body: str, story: str) -> float:
    """Seconds of a cell that has to fail and to say why."""
    check_sum(kernel, OURS)
    answer = kernel.run(OURS.on_all(body))
    if answer.ok or story not in answer.text:
        raise CellFailed(answer.text)
    return answer.seconds


def interrupted(kernel: Kernel, body: str, after: float = 1.0) -> float:
    """Seconds from the stop button to the prompt."""
    check_sum(kernel, OURS)
    pressed: list[float] = []

    def press(now: float) -> None:
        if now > after and not pressed:
            pressed.append(now)
            kernel.interrupt()

    answer = kernel.run(OURS.on_all(body), tick=press)
    if answer.ok or "Interrupted" not in answer.text:
        raise CellFailed(answer.text)
    return answer.seconds - pressed[0]


def row(
    what: str, ours: float, peer: float | None, peer_name: str, unit: str, note: str = "",
    size: int = 0,
) -> Row:  # fmt: skip
    theirs = None if peer is None else round(peer, 4)
    return Row("launch", what, WORLD, size, round(ours, 4), theirs, peer_name, unit, note)


def rows() -> Iterator[Row]:
    """About three minutes with the peers, one without."""
    yield from start_rows()
    yield from tool_rows()
    yield from fault_rows()
