"""A network that is simulated: calls are matched and take virtual time, and nothing is sent.

Notebook: 13 The mesh (a cluster in the cell).
Source: SimGrid's SMPI, which runs real MPI programs on a simulated network in one process.
Costs no byte; what a call would take is the business of whoever gives the `Fabric`.
The production version is ASTRA-sim's network layer, or ns-3 below it.

This room knows no cluster and no price. A `Fabric` is given in: it takes what each rank posts, and
says when that is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch

from course_lib.comm.matching import Post
from course_lib.comm.torch_transport import book_parts
from course_lib.comm.transport import Handle
from course_lib.trace import Event, Ledger


class SimulatedHandle(Handle, Protocol):
    """A call under way, of which the network knows when it ends."""

    def when_done(self, then: Callable[[float], None]) -> None:
        """Calls `then` with the virtual time of its end."""


class Fabric(Protocol):
    """What simulates the network for all ranks.

    Attributes:
        world: how many ranks there are.
    """

    world: int

    def post(
        self, post: Post, payload: int, output: torch.Tensor, input: torch.Tensor
    ) -> SimulatedHandle:
        """Takes one rank's part of a call about `payload` bytes, S of the formulas."""

    def split(self, rank: int, parts: Sequence[Sequence[int]]) -> int:
        """Number of the group of the part that the rank is in; returns when all have cut."""


class SimulatedTransport:
    """One group on a simulated network, as one of its members uses it.

    Args:
        fabric: simulates the network.
        rank: whose end this is.
        ranks: global ranks of the group, in the order of their index.
        number: of the group; 0 is the world.
    """

    gpu_to_gpu = True

    def __init__(self, fabric: Fabric, rank: int, ranks: Sequence[int], number: int = 0) -> None:
        self._fabric, self._rank, self._ranks, self._number = fabric, rank, tuple(ranks), number
        self.name = f"simulated group {number}"

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
        rooted, reduces = op in ("broadcast", "reduce"), "reduce" in op
        row = math.prod(input.shape[1:])  # of an all_to_all, also where this rank sends none
        post = self._post(
            op,
            input,
            reduction=reduction if reduces else "",
            root=root if rooted else -1,
            taken=tuple(n * row for n in sizes[0]),
            given=tuple(n * row for n in sizes[1]),
        )
        whole = output if op == "all_gather" else input
        return self._fabric.post(post, whole.numel() * whole.element_size(), output, input)

    def send(self, data: torch.Tensor, to: int, event: Event | None = None, tag: int = 0) -> Handle:
        """See `Transport.send`."""
        post = self._post("send", data, peer=self._ranks[to], tag=tag)
        return self._fabric.post(post, data.nbytes, data, data)

    def recv(
        self, data: torch.Tensor, source: int, event: Event | None = None, tag: int = 0
    ) -> Handle:
        """See `Transport.recv`."""
        post = self._post("recv", data, peer=self._ranks[source], tag=tag)
        return self._fabric.post(post, data.nbytes, data, data)

    def when_done(self, handle: Handle, then: Callable[[float], None]) -> None:
        """See `Transport.when_done`."""
        cast(SimulatedHandle, handle).when_done(then)

    def split(self, parts: Sequence[Sequence[int]], ledger: Ledger) -> SimulatedTransport:
        """See `Transport.split`; ranks tell each other the same as over torch.distributed."""
        count = self._fabric.world
        if sum(map(len, parts)) != count:
            self._tell_parts(count, ledger)
        number = self._fabric.split(self._rank, parts)
        [mine] = [part for part in parts if self._rank in part]
        return SimulatedTransport(self._fabric, self._rank, mine, number)

    def _tell_parts(self, count: int, ledger: Ledger) -> None:
        world = SimulatedTransport(self._fabric, self._rank, range(count))
        mine = torch.zeros(count, 2, dtype=torch.int64)
        event = book_parts(mine, world._ranks, self._rank, world.name, ledger)
        said = torch.zeros(count * count, 2, dtype=torch.int64, device="meta")
        world.collective("all_gather", said, mine.to("meta")).wait()
        ledger.finish(event)

    def _post(self, op: str, data: torch.Tensor, **fields: object) -> Post:
        return Post(
            self._rank,
            op,
            self._number,
            str(data.dtype).removeprefix("torch."),
            data.numel(),
            data.element_size(),
            **fields,  # type: ignore[arg-type]
        )
