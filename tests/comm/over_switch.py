"""Ranks whose calls go over the switch, which runs in a process of its own beside them."""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.comm import Group
from course_lib.comm.switch import Link, Switch, SwitchTransport
from course_lib.trace import Ledger


def over_switch(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(group, ...)` for `run_on_ranks`, with a group of the switch's."""

    def run(world: Group, *args: Any) -> Any:
        import torch.distributed as dist

        folder = [tempfile.mkdtemp() if world.rank == 0 else ""]
        dist.broadcast_object_list(folder)
        path = str(Path(folder[0]) / "switch")
        if world.rank == 0 and os.fork() == 0:
            try:
                serve(path, world.size)
            finally:
                shutil.rmtree(folder[0])
                os._exit(0)
        with socket.socket(socket.AF_UNIX) as line:
            patience = time.monotonic() + 30
            while line.connect_ex(path) and time.monotonic() < patience:
                time.sleep(0.01)
            line.sendall(bytes([world.rank]))
            _, fds, _, _ = socket.recv_fds(line, 1, 2)
        ledger = Ledger(world.rank)
        link = Link(fds[0], fds[1], ledger)
        link.expect_threads()
        transport = SwitchTransport(link, world.rank, world.ranks)
        return function(Group(world.ranks, world.rank, "world", ledger, transport), *args)

    return run


def serve(path: str, size: int) -> None:
    """The switch: until all ranks have hung up."""
    switch = Switch(size)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(size)
        os.rename(path + ".new", path)
        for _ in range(size):
            line, _ = listener.accept()
            with line:
                rank = line.recv(1)[0]
                socket.send_fds(line, [b"f"], switch.files(rank))
                switch.close_files(rank)
    running = set(range(size))
    while running:
        files = {switch.fileno(rank): rank for rank in running}
        ready, _, _ = select.select(files, [], [], 0.05)
        for fd in ready:
            if not switch.hear(files[fd]):
                running.discard(files[fd])
        still = not ready and all(switch.hear(rank) for rank in running)
        if running and still and (found := switch.standstill(running)):
            switch.refuse_all(found.text)
