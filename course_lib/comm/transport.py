"""What carries a group's bytes: the one seam between this library and a network.

Notebook: none of its own; every call of every lesson passes here.
Source: MPI's transfer layers and NCCL's net plugins, which hide a network behind a few calls.
Costs nothing by itself.
The production version also registers buffers, and says which of them the network can reach.

`comm` checks a call, books it in the ledger and hands it to the group's transport. Peers and roots
are indices in the group; tensors are contiguous, and of dtypes and on devices that it can carry
(see `carry`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch

from course_lib.trace import Event, Ledger


class Handle(Protocol):
    """A call under way."""

    def wait(self, limit: timedelta = ..., /) -> Any:
        """Returns once its buffers may be used again; raises RuntimeError after `limit`."""

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""


class Transport(Protocol):
    """The network of one group, as one of its members uses it.

    Attributes:
        gpu_to_gpu: whether collectives on GPUs need not go through the host.
        name: the same on all its ranks, and no other transport's.
    """

    gpu_to_gpu: bool
    name: str

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
        """Starts a collective.

        Args:
            op: `all_reduce`, `reduce`, `broadcast`, `all_gather`, `reduce_scatter`, `all_to_all`
                or `barrier`.
            output: what it writes; the same tensor as `input` for the first three.
            input: what it reads.
            reduction: `sum`, `max`, `min` or `product`, where numbers are reduced.
            root: index of the member that has the tensor of a broadcast, or gets that of a reduce.
            sizes: rows of `output` from each member, and rows of `input` for each; of all_to_all.
            event: the call's entry in the ledger, for networks that keep a book of their own; None
                if it is the next to be booked.
        """

    def send(self, data: torch.Tensor, to: int, event: Event | None = None, tag: int = 0) -> Handle:
        """Starts a message, or a piece of one, to one member; `event` as in `collective`.

        Messages of one pair with different tags pass each other by, where the network can.
        """

    def recv(
        self, data: torch.Tensor, source: int, event: Event | None = None, tag: int = 0
    ) -> Handle:
        """Starts to receive a message, or a piece of one, from one member; the rest as above."""

    def when_done(self, handle: Handle, then: Callable[[float], None]) -> None:
        """Calls `then` with the time at which a call has ended, where the network can tell.

        That is in seconds on the machine's monotonic clock, and known even if nobody waits.
        """

    def split(self, parts: Sequence[Sequence[int]], ledger: Ledger) -> Transport:
        """The transport of the part that this rank is in. Collective over the world.

        Args:
            parts: global ranks of each part that this group is cut into.
            ledger: this rank's; what the members must tell each other first is booked there.
        """
