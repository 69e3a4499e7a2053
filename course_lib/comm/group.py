"""A group of ranks that talk to each other; always an argument, never looked up.

Notebook: 00 Ranks and the ledger (hello_mesh).
Source: MPI's communicators; torch.distributed's ProcessGroup and DeviceMesh, whose words are used.
Costs: making a group is collective over all ranks (one small exchange through the store); if a
part of the world is cut, an all-gather of 16 bytes for each rank and from each rank before it.
The production version caches one NCCL communicator a group and splits it off its parent's.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist

# Its functions have the world's process group as a default value, taken when it is imported: later
# than init_process_group (an optimizer does it), that would keep the group alive for ever.
import torch.distributed.nn.functional

from course_lib.comm.errors import CommError
from course_lib.trace import Ledger, wire_bytes


class Group:
    """Ranks that share a process group, and the ledger that their calls are booked in.

    Attributes:
        ranks: global ranks, in the order of their index in the group.
        index: this process's place in `ranks`.
        axis: name of the mesh axis that this group lies on; `world` for all ranks.
        ledger: this rank's ledger, shared by all its groups.
        handle: torch's process group, as long as torch keeps it.
        device: where this rank computes. Tensors on the CPU can be sent as well.
        has_nccl: whether tensors on GPUs go from GPU to GPU in collectives.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        rank: int,
        axis: str,
        ledger: Ledger,
        handle: dist.ProcessGroup,
        device: torch.device | None = None,
    ) -> None:
        self.ranks = tuple(ranks)
        self.rank = rank
        self.index = self.ranks.index(rank)
        self.axis = axis
        self.ledger = ledger
        # torch alone keeps it alive. When it is destroyed, gloo's threads end there and then; one
        # that still runs while Python shuts down aborts the process (pytorch/pytorch #190489).
        self._handle = weakref.ref(handle)
        self.has_nccl = "nccl" in dist.get_backend(handle)
        self.device = device or _device_of(self.has_nccl)

    @classmethod
    def world(cls, ledger: Ledger | None = None, device: torch.device | None = None) -> Group:
        """All ranks, over the default process group, which must be initialised.

        Args:
            ledger: the book to use; a new one if None.
            device: where this rank computes; if None, its GPU if the ranks talk through NCCL, else
                the CPU.

        Raises:
            CommError: `torch.distributed` is not initialised in this process.
        """
        if not dist.is_initialized():
            raise CommError(
                "the group of all ranks",
                "torch.distributed is not initialised in this process",
                "call torch.distributed.init_process_group first, or run the cell with %%ranks",
            )
        rank = dist.get_rank()
        handle = dist.group.WORLD
        assert handle is not None
        ranks = range(dist.get_world_size())
        return cls(ranks, rank, "world", ledger or Ledger(rank), handle, device)

    @property
    def handle(self) -> dist.ProcessGroup:
        """The process group of torch.distributed.

        Raises:
            CommError: it has been destroyed.
        """
        handle = self._handle()
        if handle is None:
            raise CommError(
                f"a call on {self}",
                "torch.distributed has destroyed this process group",
                "make the group again after init_process_group; groups do not outlive it",
            )
        return handle

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
        rank must call it in the same order, and members of one group with the same parts. Lines of
        a mesh may be cut at the same time; each rank then hears of the others' parts first.

        Args:
            parts: disjoint lists of indices in this group that cover it.
            axis: the name that the new groups get.

        Raises:
            CommError: the parts do not cover the group, or overlap.
        """
        flat = sorted(index for part in parts for index in part)
        if flat != list(range(self.size)):
            raise CommError(
                f"split {self} into {[list(part) for part in parts]}",
                f"the parts hold the indices {flat}",
                f"every index from 0 to {self.size - 1} must be in exactly one part",
            )
        mine = None
        for ranks in self._parts_of_all([[self.ranks[i] for i in part] for part in parts]):
            handle = dist.new_group(ranks)
            if self.rank in ranks:
                mine = Group(ranks, self.rank, axis, self.ledger, handle, self.device)
        assert mine is not None
        return mine

    def _parts_of_all(self, parts: list[list[int]]) -> list[list[int]]:
        """What this and all other groups are cut into now, each once, the same order on all ranks.

        torch tells groups apart by how many were made before: all must be made one by one.
        """
        count = dist.get_world_size()
        if self.size == count:
            return parts
        numbered = [(number, rank) for number, part in enumerate(parts) for rank in part]
        mine = torch.full((count, 2), -1)
        mine[: self.size] = torch.tensor(numbered)
        said: dict[tuple[int, ...], None] = {}
        for rows in self._said_by_all(mine):
            cut: dict[int, list[int]] = {}
            for number, rank in rows:
                if rank >= 0:
                    cut.setdefault(number, []).append(rank)
            said.update(dict.fromkeys(map(tuple, cut.values())))
        return [list(ranks) for ranks in said]

    def _said_by_all(self, mine: torch.Tensor) -> list[list[list[int]]]:
        """Every rank's tensor, in order: one all-gather over the world, booked as such."""
        ranks = tuple(range(dist.get_world_size()))
        payload = len(ranks) * mine.nbytes
        sent, received = wire_bytes("all_gather", payload, len(ranks), self.rank, mine.itemsize)
        event = self.ledger.begin(
            "all_gather", axis="world", group=ranks, payload=payload, sent=sent, received=received,
            shape=tuple(mine.shape), dtype="int64", item=mine.itemsize,
        )  # fmt: skip
        said = mine.new_empty(len(ranks) * len(mine), *mine.shape[1:])
        dist.all_gather_single(said, mine)
        self.ledger.finish(event)
        return said.view(len(ranks), *mine.shape).tolist()

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
    """Where a rank computes that has not said so."""
    return torch.device("cuda", torch.cuda.current_device()) if has_nccl else torch.device("cpu")
