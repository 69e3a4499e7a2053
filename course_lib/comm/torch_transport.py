"""The network of torch.distributed: gloo between CPUs, NCCL between GPUs.

Notebook: none of its own; every lesson runs on it.
Source: torch.distributed's ProcessGroup.
Costs: making a group is collective over all ranks (one small exchange through the store). If only a
part of the world is cut, an all-gather comes first: from each rank, 16 bytes for each rank.
The production version caches one NCCL communicator a group and splits it off its parent's.

The one file of this room that knows torch.distributed.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

# Its functions take the world's process group as a default value when it is imported. If that were
# after init_process_group (an optimizer imports it), the group would be kept alive forever.
import torch.distributed.nn.functional

from course_lib.comm.errors import CommError
from course_lib.comm.transport import Handle
from course_lib.trace import Event, Ledger, wire_bytes

REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}


class TorchTransport:
    """A process group of torch.distributed as a transport.

    Args:
        handle: the process group; its ranks are in the order of their index.
    """

    def __init__(self, handle: dist.ProcessGroup) -> None:
        # Only torch keeps it alive, so that gloo's threads end when it is destroyed. A thread that
        # still runs while Python shuts down aborts the process (pytorch/pytorch #190489).
        self._handle = weakref.ref(handle)
        self._ranks = dist.get_process_group_ranks(handle)  # for an error, once it is destroyed
        self.gpu_to_gpu = "nccl" in dist.get_backend(handle)
        self.name = str(handle.group_name)

    @classmethod
    def world(cls) -> TorchTransport:
        """The transport of all ranks.

        Raises:
            CommError: `torch.distributed` is not initialised in this process.
        """
        if not dist.is_initialized():
            raise CommError(
                "the group of all ranks",
                "torch.distributed is not initialised in this process",
                "call torch.distributed.init_process_group first, or run the cell with %%ranks; an "
                "exercise uses the group that it is given",
            )
        handle = dist.group.WORLD
        assert handle is not None
        return cls(handle)

    @property
    def handle(self) -> dist.ProcessGroup:
        """The process group.

        Raises:
            CommError: it has been destroyed.
        """
        handle = self._handle()
        if handle is None:
            raise CommError(
                f"a call on the group of ranks {', '.join(map(str, self._ranks))}",
                "torch.distributed has destroyed this process group",
                "make the group again after init_process_group; groups do not outlive it",
            )
        return handle

    def collective(
        self,
        op: str,
        output: torch.Tensor,
        input: torch.Tensor,
        *,
        reduction: str = "sum",
        root: int = 0,
        sizes: tuple[Sequence[int], Sequence[int]] = ((), ()),
        event: Event | None = None,
    ) -> Handle:
        """See `Transport.collective`."""
        group, how = self.handle, REDUCTIONS[reduction]
        work: Any
        match op:
            case "all_reduce":
                work = dist.all_reduce(output, how, group, async_op=True)
            case "reduce":
                work = dist.reduce(output, None, how, group, async_op=True, group_dst=root)
            case "broadcast":
                work = dist.broadcast(output, None, group, async_op=True, group_src=root)
            case "all_gather":
                work = dist.all_gather_single(output, input, group, async_op=True)
            case "reduce_scatter":
                work = dist.reduce_scatter_single(output, input, how, group, async_op=True)
            case "all_to_all":
                taken, given = map(list, sizes)
                work = dist.all_to_all_single(output, input, taken, given, group, async_op=True)
            case "barrier":
                work = dist.barrier(group, async_op=True)
            case _:
                raise ValueError(f"a transport knows no collective {op!r}")
        return work

    def send(self, data: torch.Tensor, to: int, event: Event | None = None, tag: int = 0) -> Handle:
        """See `Transport.send`."""
        return self.handle.send([data], to, tag)

    def recv(
        self, data: torch.Tensor, source: int, event: Event | None = None, tag: int = 0
    ) -> Handle:
        """See `Transport.recv`."""
        return self.handle.recv([data], source, tag)

    def when_done(self, handle: Handle, then: Callable[[float], None]) -> None:
        """See `Transport.when_done`; gloo's reduce-scatter cannot tell when it has ended."""
        work: Any = handle
        with suppress(RuntimeError):
            work.get_future().add_done_callback(lambda _: then(time.monotonic()))

    # --- smaller groups --------------------------------------------------------------------------
    def split(self, parts: Sequence[Sequence[int]], ledger: Ledger) -> TorchTransport:
        """See `Transport.split`. torch makes every group on every rank, so all are made in turn."""
        rank, mine = dist.get_rank(), None
        for ranks in self._parts_of_all(parts, ledger):
            # Without this, torch would sort them, whatever order the caller gave.
            handle = dist.new_group(list(ranks), sort_ranks=False)
            if rank in ranks:
                mine = TorchTransport(handle)
        assert mine is not None
        return mine

    def _parts_of_all(
        self, parts: Sequence[Sequence[int]], ledger: Ledger
    ) -> Sequence[Sequence[int]]:
        """All parts that this and other groups are cut into now, in the same order on all ranks.

        torch tells groups apart by how many were made before: all must be made one by one.
        """
        count = dist.get_world_size()
        if sum(map(len, parts)) == count:
            return parts
        numbered = [(number, rank) for number, part in enumerate(parts) for rank in part]
        mine = torch.full((count, 2), -1)
        mine[: len(numbered)] = torch.tensor(numbered)
        said: dict[tuple[int, ...], None] = {}
        for rows in _said_by_all(mine, ledger):
            cut: dict[int, list[int]] = {}
            for number, rank in rows:
                if rank >= 0:
                    cut.setdefault(number, []).append(rank)
            said.update(dict.fromkeys(map(tuple, cut.values())))
        return list(said)


def _said_by_all(mine: torch.Tensor, ledger: Ledger) -> list[list[list[int]]]:
    """Every rank's tensor, in order: one all-gather over the world, booked as such."""
    ranks = tuple(range(dist.get_world_size()))
    event = book_parts(mine, ranks, dist.get_rank(), TorchTransport.world().name, ledger)
    said = mine.new_empty(len(ranks) * len(mine), *mine.shape[1:])
    dist.all_gather_single(said, mine)
    ledger.finish(event)
    rows: list[list[list[int]]] = said.view(len(ranks), *mine.shape).tolist()
    return rows


def book_parts(
    mine: torch.Tensor, ranks: tuple[int, ...], rank: int, via: str, ledger: Ledger
) -> Event:
    """Opens the event of the all-gather by which all ranks learn which groups are made."""
    payload = len(ranks) * mine.nbytes
    sent, received = wire_bytes("all_gather", payload, len(ranks), rank, mine.itemsize)
    return ledger.begin(
        "all_gather",
        axis="world",
        group=ranks,
        payload=payload,
        sent=sent,
        received=received,
        shape=tuple(mine.shape),
        dtype="int64",
        item=mine.itemsize,
        via=via,
    )


@contextmanager
def all_ranks(backend: str, *, alone: bool) -> Iterator[None]:
    """Joins the ranks that torchrun started, or is a world of one, until the block ends."""
    if alone:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)
    try:
        yield
    finally:
        dist.destroy_process_group()


def place_in_world() -> tuple[int, int]:
    """This process's rank, and how many there are."""
    return dist.get_rank(), dist.get_world_size()
