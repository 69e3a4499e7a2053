"""A process between a program and its owner: when one of them ends, it ends all that is left.

If the owner is gone, also killed, the program and its descendants are killed. If the program is
gone, so are descendants that it left. If this process is killed, the program gets SIGTERM, at which
torchrun ends its ranks; the owner is told last, since the program holds the channel as well. Only
Linux tells the program: elsewhere the owner hears of it at once, and has to end the guard's family.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.system.descend import die_with_parent, kill_family, subreaper
from course_lib.ranks.system.processes import LINUX
from course_lib.ranks.system.scratch import sweep

LOOK = 0.025  # seconds between two looks at the program
START = "from course_lib.ranks.system.guard import main; main()"


def guarded(
    command: list[str], log: Path, env: dict[str, str]
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Starts a command under a guard of its own.

    Args:
        command: the program and its arguments.
        log: a file for what it prints.
        env: its environment; `course_lib` must be importable with it.

    Returns:
        The guard, and the channel over which `{"status": ...}` comes at the end: the
        exit code, or minus the signal. Who closes the channel ends everything.
    """
    mine, theirs = Channel.pair()
    with log.open("wb") as file:
        guard = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno()), *command],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True, env=env,
        )  # fmt: skip
    theirs.close()
    return guard, mine


def main() -> None:
    """Runs the command in the arguments, for the owner whose channel is the first of them."""
    owner, parent = Channel.from_fd(int(sys.argv[1])), os.getppid()
    subreaper()
    program = subprocess.Popen(
        sys.argv[2:],
        pass_fds=[owner.fileno()] if LINUX else [],
        preexec_fn=partial(die_with_parent, signal.SIGTERM),
    )
    gone: list[Channel] = []
    while not gone and program.poll() is None:
        gone, _, _ = select.select([owner], [], [], LOOK)
    kill_family(0)
    if gone:
        sweep(parent)
    else:
        with suppress(ChannelClosed):
            owner.send({"status": program.returncode})
