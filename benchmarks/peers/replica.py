"""A rank of torchft's trainer, and one of torchrun's: a script for the peer's own interpreter.

It imports torch and torchft alone. `python replica.py torchft SETTINGS` starts a lighthouse, and a
rank for each number that comes in; torchrun starts `replica.py torchrun SETTINGS`. Every rank
writes what it does as lines of JSON into one file, which `disturbed.py` reads.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Fits(nn.Module):
    """The model of `benchmarks.failures`: it fits numbers, and a batch takes a fixed time."""

    def __init__(self, settings: SimpleNamespace) -> None:
        super().__init__()
        self.settings = settings
        self.values = nn.Parameter(torch.zeros(settings.size, dtype=torch.float64))

    def forward(self, batch: int) -> torch.Tensor:
        """Half the squared distance, whose gradient is the distance."""
        time.sleep(self.settings.step)
        made = torch.Generator().manual_seed(batch)
        size = self.settings.size
        target = torch.randn(size, generator=made, dtype=torch.float64)
        return 0.5 * (self.values - target).square().sum()


def say(settings: SimpleNamespace, what: str, **more: Any) -> None:
    """One line: small enough that lines of several processes do not mix."""
    line = json.dumps({"say": what, "time": time.monotonic(), **more}) + "\n"
    log = os.open(settings.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())
    os.close(log)


def ready(settings: SimpleNamespace, rank: int) -> None:
    """This rank is there; the first step comes when all are."""
    say(settings, "hello", rank=rank, pid=os.getpid())
    while not Path(settings.go).exists():
        time.sleep(0.005)


def sgd(model: Fits) -> torch.optim.SGD:
    """The optimizer of both."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def finish(settings: SimpleNamespace, rank: int, model: Fits) -> None:
    """Leaves the weights, to be checked."""
    torch.save(model.values.detach(), f"{settings.folder}/end_{rank}")
    say(settings, "end", rank=rank)


# --- torchft -------------------------------------------------------------------------------------
def torchft_rank(settings: SimpleNamespace, rank: int, lighthouse: str) -> None:
    """A replica group of one process, as torchft's own example has it."""
    from torchft import DistributedDataParallel as ReplicaParallel
    from torchft import Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    silent = timedelta(seconds=settings.silent)
    model = Fits(settings)
    inner = sgd(model)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        ProcessGroupGloo(timeout=silent), load,
        lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1, timeout=silent, heartbeat_interval=silent / 8,
        rank=0, world_size=1, store_addr="localhost", store_port=store.port,
        lighthouse_addr=lighthouse, replica_id=f"rank_{rank}", hostname="localhost",
        init_sync=False,
    )  # fmt: skip
    parallel, optimizer = ReplicaParallel(manager, model), Optimizer(manager, inner)
    ready(settings, rank)
    while manager.batches_committed() < settings.batches:
        begin, step = time.monotonic(), manager.current_step()
        optimizer.zero_grad()
        batch = step * settings.ranks + rank  # a batch whose rank is away is skipped
        say(settings, "batch", rank=rank, step=step, batch=batch, attempt=0)
        loss = parallel(batch)
        loss.backward()
        optimizer.step()
        say(settings, "step", rank=rank, step=step, begin=begin, batch=batch, attempt=0,
            loss=loss.item(), counts=manager.current_step() > step,
            mine=manager.is_participating(), present=manager.num_participants())  # fmt: skip
    finish(settings, rank, model)
    time.sleep(3600.0)  # it may have to give its state; whoever started it ends it


def torchft_ranks(settings: SimpleNamespace) -> None:
    """The lighthouse, and a forked process for each rank that is asked for; until there is none."""
    from torchft.coordination import LighthouseServer

    processes = multiprocessing.get_context("forkserver")  # as fast as ours: nothing to import
    processes.set_forkserver_preload(["torch", "torch._dynamo", "torchft"])
    silent = int(settings.silent * 1000)
    house = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=silent, quorum_tick_ms=10,
        heartbeat_timeout_ms=silent,
    )  # fmt: skip
    started = []
    for line in sys.stdin:
        args = (settings, int(line), house.address())
        started.append(processes.Process(target=torchft_rank, args=args, daemon=True))
        started[-1].start()
    for process in started:
        process.kill()
        process.join()
    house.shutdown()


# --- torchrun ------------------------------------------------------------------------------------
def torchrun_rank(settings: SimpleNamespace) -> None:
    """A rank of plain data parallelism, which begins at the last checkpoint on the disk."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, kept, first = dist.get_rank(), Path(settings.folder) / "kept", 0
    model = Fits(settings)
    parallel, optimizer = DistributedDataParallel(model), sgd(model)
    if kept.exists():
        state = torch.load(kept)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    ready(settings, rank)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for step in range(first, settings.batches // settings.ranks):
        begin, batch = time.monotonic(), step * settings.ranks + rank
        optimizer.zero_grad()
        say(settings, "batch", rank=rank, step=step, batch=batch, attempt=attempt)
        loss = parallel(batch)
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % settings.every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, kept.with_suffix(".new"))
            os.replace(kept.with_suffix(".new"), kept)
        say(settings, "step", rank=rank, step=step, begin=begin, batch=batch, attempt=attempt,
            loss=loss.item(), counts=True, mine=True, present=settings.ranks)  # fmt: skip
    finish(settings, rank, model)
    dist.destroy_process_group()


ROLES: dict[str, Callable[[SimpleNamespace], None]] = {
    "torchft": torchft_ranks,
    "torchrun": torchrun_rank,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](SimpleNamespace(**json.loads(Path(sys.argv[2]).read_text())))
