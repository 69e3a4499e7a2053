"""How processes start here, and the preloaded process itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from course_lib.trace import Refusal

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"  # the device that gloo is to use
# Whether there are GPUs is asked of the driver's library: CUDA's own answer would forbid the forks.
CAREFUL = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
# One thread a rank: two ranks on one core each lose several times more by fighting over it.
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
START = "from course_lib.ranks.start.preloaded import main; main()"
WAYS = ("fork", "spawn")


def start_method() -> str:
    """How processes start here: `fork` or `spawn`.

    Raises:
        Refusal: COURSE_START is neither.
    """
    default = "spawn" if sys.platform == "darwin" else "fork"
    asked = os.environ.get("COURSE_START") or default
    if asked not in WAYS:
        raise Refusal(
            f"COURSE_START={asked}",
            f"processes start by {' or by '.join(WAYS)}",
            f"there is no third way; leave it unset for {default}, which is right here",
        )
    return asked


def launch(fd: int) -> subprocess.Popen[bytes]:
    """Starts a preloaded process.

    Args:
        fd: its end of the channel to whoever asks it for children; the caller closes its own copy.

    Raises:
        Refusal: COURSE_START names no way to start processes, or this process's working folder
            has been deleted.
    """
    way = start_method()
    _check_folder()
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-c", START, str(fd), way],
        pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **CAREFUL, **THREADS, "PYTHONPATH": path},
    )  # fmt: skip


def _check_folder() -> None:
    """A process that is started where there is no folder cannot even find its own modules."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise Refusal(
            "start processes",
            "that this one's working folder has been deleted",
            "they begin in the same folder; change to one that is there, in a notebook with %cd",
        ) from None
