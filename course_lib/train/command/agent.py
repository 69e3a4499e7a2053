"""A rank ends with the agent that started it: a killed torchrun leaves no ranks that train on.

Source: the death of a parent as prctl(2) tells it, PR_SET_PDEATHSIG, which only Linux has; asking
for the parent's number works on every system.
Costs a thread that asks twice a second.
The production version is the scheduler's own group of processes: a cgroup, a pod.
"""

from __future__ import annotations

import os
import signal
import threading

import psutil

EVERY = 0.5  # seconds between two looks
AGENT = "TORCHELASTIC_RUN_ID"  # torchrun sets it for the ranks that it starts
STARTERS = ("python", "torchrun")  # of which one stands in the command line of an agent


def end_with_agent() -> None:
    """Ends this process, by a kill, once the agent that started it is gone.

    Does nothing where no torchrun started it: a shell may end before what it has started.
    """
    if AGENT not in os.environ:
        return
    agent = os.getppid()
    if not _may_be_agent(agent):
        _end()
    threading.Thread(target=_watch, args=(agent,), name="agent", daemon=True).start()


def _watch(agent: int) -> None:
    wait = threading.Event()
    while os.getppid() == agent:
        wait.wait(EVERY)
    _end()


def _may_be_agent(pid: int) -> bool:
    """Whether a parent is no process that orphans are given to.

    While torch was imported, for seconds, nobody watched, and the agent may be gone already.
    """
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return pid == os.getppid()  # hidden from us, and so none of ours
    return any(starter in os.path.basename(word) for word in words for starter in STARTERS)


def _end() -> None:
    """No goodbyes: others wait in a collective, and a checkpoint is whole or not there."""
    os.kill(os.getpid(), signal.SIGKILL)
