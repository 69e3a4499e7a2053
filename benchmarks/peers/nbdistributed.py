"""nbdistributed: workers started by its magics, which broadcast cells to them over zmq.

It has no magic that brings a value back, so the object behind its magics is asked. Its shutdown
calls `pkill -f` with patterns that would hit other programs: the kernel's PATH begins with a folder
in which `pkill` and `killall` do nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.way import Way

LOAD = """
%load_ext nbdistributed
from IPython.core.magic import register_line_magic
magics = get_ipython().magics_manager.registry.values()
peer = [m for m in magics if type(m).__name__ == 'DistributedMagic'][0]
@register_line_magic
def peer_pull(line):
    manager = peer._comm_manager
    get_ipython().user_ns['got'] = manager.send_to_rank(0, 'get_var', line.strip())['value']
@register_line_magic
def peer_wait(line):
    import time
    end = time.time() + 60
    while time.time() < end:
        try:
            peer._comm_manager.send_to_all('get_status', {}, timeout=0.2)
            return
        except TimeoutError:
            pass
"""


def nbdistributed(python: str, folder: Path) -> Way:
    """The way, in the environment of that interpreter.

    Args:
        python: the interpreter.
        folder: an empty folder, for the programs that do nothing.
    """
    for name in ("pkill", "killall"):
        path = folder / name
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    start = ("%dist_init -n 4", "%peer_wait")
    search = [str(folder), str(Path(python).parent), os.environ.get("PATH", "")]
    return Way(
        name="nbdistributed",
        load=LOAD,
        start=start,
        header="%%distributed",
        pull="%peer_pull big",
        restart=("%dist_reset", *start),
        python=python,
        env={"PATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
