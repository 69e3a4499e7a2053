"""Matrices that are cut over ranks, each made whole on one of them, and cut again.

Notebook: 19 Optimizers that see matrices (owner_muon).
Source: Liu et al., "Muon is Scalable for LLM Training" (2025), section 2.3, where every rank
gathers each matrix and drops the rest of the result; one owner for each is in the code that goes
with Ahn et al., "Dion: Distributed Orthonormalized Updates" (2025).
Costs two all-to-alls of at most (N-1)/N·S/N bytes sent by each rank, S those of all matrices; an
all-gather on every rank would be (N-1)/N·S, and N times the operations.
The production version (Dion's repository, `muon.py`) gives each rank an equal number of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from course_lib.comm import CommError, Group, all_to_all


@dataclass(frozen=True)
class Cut:
    """How a tensor is divided: range i of its elements, in order of memory, is at index i.

    Attributes:
        shape: of the whole.
        ranges: for each index of the group, first element and the one behind the last.
    """

    shape: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]

    def count(self, index: int) -> int:
        """Elements at an index."""
        begin, end = self.ranges[index]
        return end - begin


def choose_owners(costs: Sequence[float], parts: int) -> list[int]:
    """Gives each matrix an owner, so that the busiest owner has little more than the mean.

    The most expensive first, each to whoever has least so far: at most 4/3 of the best division
    (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969).

    Args:
        costs: of the matrices, in any unit.
        parts: owners.

    Returns:
        The owner of each matrix; the same on every rank, since it depends on the costs alone.
    """
    load = [0.0] * parts
    owners = [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        owners[number] = min(range(parts), key=lambda part: (load[part], part))
        load[owners[number]] += costs[number]
    return owners


class Exchange:
    """Carries pieces to the owners of their matrices, and results back.

    Args:
        cuts: of the matrices, the same on every rank.
        owners: of each, as an index of the group.
        group: the ranks that have the pieces.

    Raises:
        CommError: a cut does not have one range for each rank, or ranges that leave a gap.
    """

    def __init__(self, cuts: Sequence[Cut], owners: Sequence[int], group: Group) -> None:
        self.cuts, self.group = list(cuts), group
        self._owned = [[n for n, o in enumerate(owners) if o == i] for i in range(group.size)]
        self._order = [n for numbers in self._owned for n in numbers]
        for cut in self.cuts:
            begins, ends = zip(*cut.ranges, strict=True)
            count = torch.Size(cut.shape).numel()
            if len(cut.ranges) != group.size or (*begins, count) != (0, *ends):
                raise CommError(
                    f"an Exchange over {group}",
                    f"the ranges {cut.ranges} of a matrix of {cut.shape}",
                    "each index has the elements that follow those of the index before",
                )

    def to_owners(self, pieces: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """The matrices that this rank owns, whole, by their numbers; one all-to-all.

        Args:
            pieces: this rank's elements of every matrix, in the order of the cuts; any shape.
        """
        sent = _joined((pieces[n] for n in self._order), pieces)
        mine = self._owned[self.group.index]
        taken = [sum(self.cuts[n].count(i) for n in mine) for i in range(self.group.size)]
        output = sent.new_empty(sum(taken))
        all_to_all(output, sent, self.group, taken, self._to_each_owner())
        whole = {n: sent.new_empty(torch.Size(self.cuts[n].shape).numel()) for n in mine}
        parts = iter(output.split([self.cuts[n].count(i) for i, n in self._by_index(mine)]))
        for index, number in self._by_index(mine):
            begin, end = self.cuts[number].ranges[index]
            whole[number][begin:end] = next(parts)
        return {n: flat.view(self.cuts[n].shape) for n, flat in whole.items()}

    def back(
        self, whole: Mapping[int, torch.Tensor], like: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """This rank's pieces of what the owners have; one all-to-all.

        Args:
            whole: by number, the matrices that this rank owns.
            like: tensors with the shapes and the dtype of the pieces.
        """
        mine = self._owned[self.group.index]
        flat = {n: whole[n].reshape(-1) for n in mine}
        parts = [flat[n][slice(*self.cuts[n].ranges[i])] for i, n in self._by_index(mine)]
        given = [sum(self.cuts[n].count(i) for n in mine) for i in range(self.group.size)]
        sent = _joined(parts, like)
        output = sent.new_empty(sum(self._to_each_owner()))
        all_to_all(output, sent, self.group, self._to_each_owner(), given)
        counts = [self.cuts[n].count(self.group.index) for n in self._order]
        arrived = dict(zip(self._order, output.split(counts), strict=True))
        return [arrived[n].view(tensor.shape).to(tensor.dtype) for n, tensor in enumerate(like)]

    def _to_each_owner(self) -> list[int]:
        me = self.group.index
        return [sum(self.cuts[n].count(me) for n in numbers) for numbers in self._owned]

    def _by_index(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        return [(index, n) for index in range(self.group.size) for n in numbers]


def _joined(parts: Iterable[torch.Tensor], like: Sequence[torch.Tensor]) -> torch.Tensor:
    """One after the other, in the widest dtype of `like`: ranks that own nothing send that too."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in like))
    return torch.cat([like[0].new_empty(0, dtype=dtype), *(part.reshape(-1) for part in parts)])
