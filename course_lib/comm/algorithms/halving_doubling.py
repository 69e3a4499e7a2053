"""All-reduce between partners at distance 1, 2, 4, ...: log2 N rounds where a ring takes N-1.

Notebook: 01 Collectives from scratch (halving_doubling_all_reduce, ring against tree).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), sections 4.4 and 4.5 (recursive doubling, Rabenseifner's algorithm).
Costs: doubling sends log2 N·S in log2 N rounds, best for small tensors; halving-doubling sends
2(N-1)/N·S in 2·log2 N rounds. Where N is no power of two, S bytes and two rounds more (the fold).
The production version (NCCL) takes trees instead, whose partners do not cross the whole network.
"""

from __future__ import annotations

from itertools import accumulate

import torch

from course_lib.comm.algorithms.assembly import (
    built,
    check_reduction,
    combine,
    finish_average,
    swap,
    swap_and_combine,
)
from course_lib.comm.group import Group
from course_lib.comm.messages import recv, send
from course_lib.trace import chunk_sizes


def doubling_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    """Reduces a tensor in place by recursive doubling: whole tensors, log2 N rounds.

    Args:
        tensor: same shape and dtype on every member.
        group: the group.
        op: `sum`, `avg` or `max`. log2 N·S bytes are sent by each rank.

    Raises:
        CommError: `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "doubling_all_reduce")
    with built("all_reduce", "doubling", tensor, group, reduction=op) as row:
        _Doubling(row, group, op, whole=True).run()


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    """Reduces a tensor in place: reduce-scatter by halves, then all-gather by doubles.

    Args:
        tensor: same shape and dtype on every member, any number of elements.
        group: the group.
        op: `sum`, `avg` or `max`. 2(N-1)/N·S bytes are sent by each rank, in 2·log2 N rounds; in
            groups whose size is no power of two, some ranks send S more, in two more rounds.

    Raises:
        CommError: `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "halving_doubling_all_reduce")
    with built("all_reduce", "halving-doubling", tensor, group, reduction=op) as row:
        _Doubling(row, group, op, whole=False).run()


class _Doubling:
    """One all-reduce under way.

    Args:
        row: the tensor's elements.
        group: the group.
        op: the reduction.
        whole: partners exchange whole tensors (doubling), not halves (halving-doubling).
    """

    def __init__(self, row: torch.Tensor, group: Group, op: str, *, whole: bool) -> None:
        self.row, self.group, self.op, self.whole = row, group, op, whole
        self.power = 1 << (group.size.bit_length() - 1)
        self.rest = group.size - self.power
        # Members below 2·rest pair up; the odd one of a pair acts for both.
        self.team = [i for i in range(group.size) if i >= 2 * self.rest or i % 2]
        self.step = 0

    def run(self) -> None:
        """Fold, exchange, unfold. An empty tensor needs no message."""
        if self.group.size == 1 or not self.row.numel():
            return
        index = self.group.index
        if index < 2 * self.rest:
            self.fold(speaks=index in self.team)
        self.step += self.rest > 0
        if index in self.team:
            place = self.team.index(index)
            self.double(place) if self.whole else self.halve_and_double(place)
            finish_average(self.row, self.op, self.group.size)
        if index < 2 * self.rest:
            self.unfold(speaks=index in self.team)

    def fold(self, speaks: bool) -> None:
        """Leaves a power of two: in each pair below 2·rest, the even one gives its tensor away."""
        if not speaks:
            send(self.row, self.group.index + 1, self.group, step=self.step)
            return
        buffer = torch.empty_like(self.row)
        with self.group.ledger.hold("communication buffers", buffer.nbytes):
            recv(buffer, self.group.index - 1, self.group, step=self.step)
            combine(self.row, buffer, self.op)

    def unfold(self, speaks: bool) -> None:
        """Those who gave their tensor away get the result, in the last round."""
        doublings = self.power.bit_length() - 1
        last = 1 + doublings * (1 if self.whole else 2)
        if speaks:
            send(self.row, self.group.index - 1, self.group, step=last)
        else:
            recv(self.row, self.group.index + 1, self.group, step=last)

    def double(self, place: int) -> None:
        """Whole tensors, with partners at distance 1, 2, 4, ..."""
        distance = 1
        while distance < self.power:
            partner = self.team[place ^ distance]
            swap_and_combine(self.row, self.row, partner, self.group, self.op, step=self.step)
            self.step += 1
            distance *= 2

    def halve_and_double(self, place: int) -> None:
        """Each round halves what a member is responsible for, then each round doubles it again."""
        bounds = [0, *accumulate(chunk_sizes(self.row.numel(), self.power))]

        def run_of(member: int, count: int) -> tuple[int, torch.Tensor]:
            """The aligned run of `count` chunks with chunk `member` in it; its first, its data."""
            first = member - member % count
            return first, self.row[bounds[first] : bounds[first + count]]

        distances = [1 << bit for bit in range(self.power.bit_length() - 1)]
        for distance in reversed(distances):
            partner = self.team[place ^ distance]
            first, given = run_of(place ^ distance, distance)
            _, kept = run_of(place, distance)
            note = {"step": self.step, "chunk": first}
            swap_and_combine(given, kept, partner, self.group, self.op, **note)
            self.step += 1
        for distance in distances:
            partner = self.team[place ^ distance]
            first, given = run_of(place, distance)
            _, taken = run_of(place ^ distance, distance)
            note = {"step": self.step, "chunk": first}
            swap(given, partner, taken, partner, self.group, **note)
            self.step += 1
