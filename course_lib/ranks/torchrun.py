"""Runs source code as a script under the real torchrun, and collects what its ranks print.

Notebook: 00 Ranks and the ledger; every lesson's last run.
Source: torch.distributed.run and its elastic agent.
Costs a fresh interpreter and an import of torch for each rank: seconds, where the pool needs none.
The production version is this, on every node, with a rendezvous that the nodes share.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from course_lib.ranks.descend import kill_family
from course_lib.ranks.forkserver import LOOPBACK, THREADS

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class TorchrunResult:
    """What a run gave.

    Attributes:
        output: rank to what it printed, stdout before stderr.
        failure: what went wrong; "" if all ranks ended with code 0.
    """

    output: dict[int, bytes]
    failure: str


def run(source: str, world_size: int, timeout: float | None = None) -> TorchrunResult:
    """Runs `source` on `world_size` fresh processes, exactly as `torchrun script.py` would.

    Args:
        source: the script.
        world_size: processes on this machine.
        timeout: seconds after which everything is killed; None for no limit.

    Raises:
        KeyboardInterrupt: passed on, after all processes were ended.
    """
    with tempfile.TemporaryDirectory(prefix="course-torchrun-") as folder:
        script, logs = Path(folder) / "script.py", Path(folder) / "logs"
        script.write_text(source)
        with (Path(folder) / "agent.log").open("wb") as agent:
            process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 f"--nproc-per-node={world_size}", f"--log-dir={logs}", "--redirects=3",
                 str(script)],
                stdin=subprocess.DEVNULL, stdout=agent, stderr=agent, start_new_session=True,
                env=_environment(),
            )  # fmt: skip
            failure = _wait(process, timeout)
        output = {rank: _printed(logs, rank) for rank in range(world_size)}
        if process.returncode and not failure:
            failure = f"torchrun ended with code {process.returncode}: see the ranks' output above"
            if not any(output.values()):
                failure += "\n" + (Path(folder) / "agent.log").read_text(errors="replace")[-2000:]
        return TorchrunResult(output, failure)


def _environment() -> dict[str, str]:
    """What the processes get: torchrun's own variables come on top of it."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **THREADS, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": LOOPBACK}


def _wait(process: subprocess.Popen[bytes], timeout: float | None) -> str:
    """Waits for torchrun; ends it, and its ranks, when time is up or on an interrupt."""
    try:
        process.wait(timeout)
        return ""
    except subprocess.TimeoutExpired:
        return f"torchrun was ended after {timeout:g} s"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGSTOP)
            kill_family(process.pid)
            process.wait()


def _printed(logs: Path, rank: int) -> bytes:
    """All that a rank printed: torchrun writes it to <run>/attempt_0/<rank>/."""
    parts = []
    for name in ("stdout.log", "stderr.log"):
        parts += [path.read_bytes() for path in sorted(logs.glob(f"*/attempt_*/{rank}/{name}"))]
    return b"".join(parts)
