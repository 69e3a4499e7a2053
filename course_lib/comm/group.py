"""A group of ranks that talk to each other; always an argument, never looked up.

Notebook: 00 Ranks and the ledger (hello_mesh).
Source: MPI's communicators; torch.distributed's ProcessGroup and DeviceMesh, whose words are used.
Costs: as its transport says; splitting is collective over all ranks.
The production version caches one NCCL communicator a group and splits it off its parent's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from course_lib.comm.errors import CommError
from course_lib.comm.torch_transport import TorchTransport, place_in_world
from course_lib.comm.transport import Transport
from course_lib.trace import Event, Ledger


class Group:
    """Ranks that talk over one transport, and the ledger that their calls are booked in.

    Attributes:
        ranks: global ranks, in the order of their index in the group.
        index: this process's place in `ranks`.
        axis: name of the mesh axis that this group lies on; `world` for all ranks.
        ledger: this rank's ledger, shared by all its groups.
        transport: what carries their bytes.
        device: where this rank computes. Tensors on the CPU can be sent as well.
        has_nccl: whether tensors on GPUs go from GPU to GPU in collectives.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        rank: int,
        axis: str,
        ledger: Ledger,
        transport: Transport,
        device: torch.device | None = None,
    ) -> None:
        self.ranks = tuple(ranks)
        self.rank = rank
        self.index = self.ranks.index(rank)
        self.axis = axis
        self.ledger = ledger
        self.transport = transport
        self.has_nccl = transport.gpu_to_gpu
        self.device = device or _device_of(self.has_nccl)

    @classmethod
    def world(cls, ledger: Ledger | None = None, device: torch.device | None = None) -> Group:
        """All ranks, over the default process group, which must be initialised.

        Args:
            ledger: the ledger to book in; a new one if None.
            device: where this rank computes; if None, its GPU if the ranks talk through NCCL, else
                the CPU.

        Raises:
            CommError: `torch.distributed` is not initialised in this process.
        """
        transport = TorchTransport.world()
        rank, count = place_in_world()
        return cls(range(count), rank, "world", ledger or Ledger(rank), transport, device)

    @property
    def handle(self) -> Any:
        """The process group of torch.distributed, to call it past the ledger.

        Raises:
            CommError: torch has destroyed it, or this group has another transport.
        """
        if isinstance(self.transport, TorchTransport):
            return self.transport.handle
        raise CommError(
            f"the process group of {self}",
            f"its bytes go over {type(self.transport).__name__}",
            "torch.distributed was called past course_lib.comm, and there is none below it",
        )

    def under(self, axis: str, ledger: Ledger | None = None) -> Group:
        """The same ranks and the same transport, under another name or with another ledger."""
        book = ledger or self.ledger
        return Group(self.ranks, self.rank, axis, book, self.transport, self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        """Itself: a copy of a module talks to the same ranks, and is booked in the same ledger."""
        return self

    @property
    def size(self) -> int:
        """How many ranks there are in the group."""
        return len(self.ranks)

    @property
    def next(self) -> int:
        """Index of the next member on the ring."""
        return (self.index + 1) % self.size

    @property
    def previous(self) -> int:
        """Index of the previous member on the ring."""
        return (self.index - 1) % self.size

    def split(self, parts: Sequence[Sequence[int]], axis: str) -> Group:
        """Cuts this group into smaller ones and returns the one that holds this rank.

        Collective over the *world*, since torch.distributed makes all groups on all ranks: every
        rank must call it in the same order, and members of one group with the same parts. Parts of
        the world (lines of a mesh) may be cut at the same time; then all ranks first tell each
        other their parts.

        Args:
            parts: disjoint lists of indices in this group that cover it.
            axis: the name that the new groups get.

        Raises:
            CommError: the parts do not cover the group, overlap, or are empty.
        """
        flat = sorted(index for part in parts for index in part)
        if flat != list(range(self.size)) or not all(map(len, parts)):
            raise CommError(
                f"split {self} into {[list(part) for part in parts]}",
                f"the parts hold the indices {flat}",
                f"every index from 0 to {self.size - 1} must be in exactly one part; none is empty",
            )
        cut = [[self.ranks[index] for index in part] for part in parts]
        transport = self.transport.split(cut, self.ledger)
        [mine] = [part for part in cut if self.rank in part]
        return Group(mine, self.rank, axis, self.ledger, transport, self.device)

    def book(self, op: str, *, payload: int, **fields: Any) -> Event:
        """Opens the event of a call on this group in the ledger; `fields` are further ones."""
        return self.ledger.begin(
            op, axis=self.axis, group=self.ranks, payload=payload, via=self.transport.name, **fields
        )

    def check_index(self, index: int, asked: str) -> int:
        """`index`, if it is one of this group's.

        Raises:
            CommError: it is not.
        """
        if not 0 <= index < self.size:
            raise CommError(
                f"{asked} {index}", f"{self}", f"an index here is between 0 and {self.size - 1}"
            )
        return index

    def __repr__(self) -> str:
        members = ", ".join(map(str, self.ranks))
        return f"Group({self.axis}: ranks {members}; this is rank {self.rank}, index {self.index})"


def _device_of(has_nccl: bool) -> torch.device:
    """The device of a rank for which none was given."""
    return torch.device("cuda", torch.cuda.current_device()) if has_nccl else torch.device("cpu")
