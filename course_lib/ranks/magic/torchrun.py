"""Runs source code as a script under the real torchrun, and collects what its ranks print."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from course_lib.ranks.pool.outcome import ending
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.launch import LOOPBACK, THREADS
from course_lib.ranks.system.descend import kill_family
from course_lib.ranks.system.guard import guarded
from course_lib.ranks.system.interrupts import held
from course_lib.ranks.system.scratch import scratch_folder
from course_lib.trace import Refusal

HOST = "127.0.0.1"  # or torchrun looks the machine's name up, which may have no answer for minutes
STARTS = "torchrun starts the processes; each imports torch"  # until one of them prints
RAISED = "1"  # the exit code of a rank that says itself what it has raised
LOOK = 0.5  # seconds between two looks at what was printed
SCARCE = 1 << 16  # bytes free on a disk that is called full
ROOT = Path(__file__).resolve().parents[3]


@dataclass
class TorchrunResult:
    """What a run gave.

    Attributes:
        output: rank to what it printed, stdout before stderr.
        failure: what went wrong; "" if all ranks ended with code 0.
    """

    output: dict[int, bytes]
    failure: str


def run(
    source: str,
    world_size: int,
    timeout: float | None = None,
    watch: Callable[[dict[int, bytes]], None] = lambda output: None,
) -> TorchrunResult:
    """Runs `source` on `world_size` fresh processes, exactly as `torchrun script.py` would.

    Args:
        source: the script.
        world_size: processes on this machine.
        timeout: seconds after which everything is killed; None for no limit.
        watch: called twice a second with what each rank has printed so far.

    Raises:
        Refusal: there is no room for the script.
    """
    try:
        with held(), scratch_folder() as folder:
            return _run(folder, source, world_size, timeout, watch)
    except OSError as error:
        raise Refusal(
            f"run a script under torchrun in {tempfile.gettempdir()}",
            f"{error.strerror or error}",
            "the script and what its ranks print are files in the folder for temporary files",
        ) from None


def _run(
    folder: Path,
    source: str,
    world_size: int,
    timeout: float | None,
    watch: Callable[[dict[int, bytes]], None],
) -> TorchrunResult:
    script, logs, agent = folder / "script.py", folder / "logs", folder / "agent.log"
    script.write_text(source)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--local-addr={HOST}",
        f"--nproc-per-node={world_size}", f"--log-dir={logs}", "--redirects=3", str(script),
    ]  # fmt: skip
    guard, channel = guarded(command, agent, _environment())

    def printed() -> dict[int, bytes]:
        return {rank: _printed(logs, rank) for rank in range(world_size)}

    status, failure = _wait(guard, channel, timeout, lambda: watch(printed()))
    output = printed()
    if shutil.disk_usage(folder).free < SCARCE:
        failure = f"{failure or 'torchrun has ended'}; the folder for temporary files is full: "
        failure += "what the ranks printed is not all here"
    elif status:
        said = agent.read_text(errors="replace")
        ended = _ended(said)
        failure = f"torchrun {ending(status)}{ended}"
        if any(output.values()):
            failure += ": see the ranks' output above"
        elif not ended:
            failure += f", and no rank has printed anything\n{said[-2000:]}"
    return TorchrunResult(output, failure)


def _environment() -> dict[str, str]:
    """What the processes get: torchrun's own variables come on top of it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    own = {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": LOOPBACK}
    # What is printed must be in the file when a rank is killed.
    return {**os.environ, **THREADS, **own, "PYTHONUNBUFFERED": "1"}


def _wait(
    guard: subprocess.Popen[bytes],
    channel: Channel,
    timeout: float | None,
    look: Callable[[], None],
) -> tuple[int, str]:
    """Waits for torchrun; ends it, and its ranks, when time is up or on an interrupt.

    Returns:
        Its exit code, or minus the signal that ended it; and why it has none, if it has not.
    """
    deadline = inf if timeout is None else time.monotonic() + timeout
    try:
        while (left := deadline - time.monotonic()) > 0:
            with suppress(TimeoutError):
                return channel.receive(min(left, LOOK))[0]["status"], ""
            look()
        return 0, f"torchrun was ended after {timeout:g} s"
    except KeyboardInterrupt:
        return 0, "Interrupted."
    except ChannelClosed:
        pass
    finally:
        channel.close()
        kill_family(guard.pid)
        guard.wait()
    return 0, f"torchrun was ended, since its guard {ending(guard.returncode)}"


def _ended(log: str) -> str:
    """How ranks ended that no exception of theirs did, as torchrun's agent notes it; "" if none.

    When one rank has failed, the agent itself ends the others by SIGTERM: they did nothing.
    """
    found = re.findall(r"rank\s*: (\d+) \(local.*\n\s*exitcode\s*: (-?\d+) ", log)
    ends = sorted({(int(rank), int(code)) for rank, code in found})
    first = [(rank, code) for rank, code in ends if code != -signal.SIGTERM] or ends
    each = [f"rank {rank} {ending(code)}" for rank, code in first if code != RAISED]
    return f" ({'; '.join(each)})" if each else ""


def _printed(logs: Path, rank: int) -> bytes:
    """All that a rank printed: torchrun writes it to <run>/attempt_0/<rank>/."""
    parts = []
    for name in ("stdout.log", "stderr.log"):
        parts += [path.read_bytes() for path in sorted(logs.glob(f"*/attempt_*/{rank}/{name}"))]
    return b"".join(parts)
