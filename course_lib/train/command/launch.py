"""Starts the ranks of a run on this machine, as torchrun does, and says an error once.

Source: torch.distributed.run, which is what torchrun calls; it is called here.
Costs what torchrun costs.

torchrun ends with a traceback of its own when a rank ends with a code that is not 0, after the rank
has said why. With --launch, this process is the agent: the rank's words are the last ones.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
from collections.abc import Sequence

RUNNER = "torch.distributed.run"
FAILED, ENDED = "ChildFailedError", "SignalException"
CROWD = 8  # ranks a core
SIGNALLED = 128  # and the signal's number: the exit code of what a signal has ended, as in a shell


def launch(words: Sequence[str], world: int) -> int:
    """Runs the training command on so many ranks of this machine.

    Args:
        words: of its command line.
        world: how many.

    Returns:
        The exit code of the first rank that failed, or that of a signal; 0 if all ended well.
    """
    if world > CROWD * (cores := os.cpu_count() or 1):
        said = f"{world} ranks take turns on {cores} cores: starting them takes a while"
        print(said, file=sys.stderr, flush=True)
    logging.disable(logging.ERROR)  # the agent's own log repeats the exit codes
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    before = sys.argv
    sys.argv = [RUNNER, "--standalone", f"--nproc-per-node={world}", "-m", "course_lib.train.run"]
    sys.argv += words
    try:
        runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
    except Exception as error:
        if type(error).__name__ == ENDED:
            return _ended_by("the run", error.sigval)  # type: ignore[attr-defined]
        if type(error).__name__ != FAILED:
            raise
        _, failure = error.get_first_failure()  # type: ignore[attr-defined]
        if failure.exitcode < 0:
            return _ended_by(f"rank {failure.local_rank}", -failure.exitcode)
        return int(failure.exitcode)
    finally:
        sys.argv = before
    return 0


def _ended_by(what: str, number: int) -> int:
    """Says which signal has ended it, and returns the exit code."""
    name = signal.Signals(number).name
    print(f"{what} was ended by {name}", file=sys.stderr, flush=True)
    return SIGNALLED + number
