"""Binomial trees: whoever has the tensor passes it on, so the number of owners doubles each round.

Notebook: 01 Collectives from scratch (broadcast_tree; ring against tree).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), section 4.2.
Costs: ⌈log2 N⌉ rounds; every member but the root receives S once (N-1 messages in all); the root
sends up to ⌈log2 N⌉·S. A ring would take N-1 rounds.
The production version (NCCL) cuts the tensor and uses two trees, so that no rank is only a leaf.
"""

from __future__ import annotations

import torch

from course_lib.comm.algorithms.assembly import built, check_reduction, combine, finish_average
from course_lib.comm.group import Group
from course_lib.comm.messages import recv, send


def rounds(size: int) -> int:
    """⌈log2 N⌉: rounds until all N members have the tensor."""
    return (size - 1).bit_length()


def tree_broadcast(tensor: torch.Tensor, source: int, group: Group) -> None:
    """Copies one member's tensor to all, in place.

    In round k the members at places 0 ... 2^k - 1, counted from the source, have the tensor, and
    each sends it 2^k places further.

    Args:
        tensor: same shape and dtype on every member.
        source: index in the group of the member that has it.
        group: the group.

    Raises:
        CommError: `source` is not an index of the group.
    """
    group.check_index(source, "tree_broadcast from index")
    place = (group.index - source) % group.size
    with built("broadcast", "tree", tensor, group, source) as row:
        for step in range(rounds(group.size) if row.numel() else 0):
            reach = 1 << step
            if reach <= place < 2 * reach:
                recv(row, (group.index - reach) % group.size, group, step=step)
            elif place < reach and place + reach < group.size:
                send(row, (group.index + reach) % group.size, group, step=step)


def tree_reduce(tensor: torch.Tensor, target: int, group: Group, op: str = "sum") -> None:
    """Reduces a tensor to one member, in place: the broadcast, run backwards.

    Args:
        tensor: same shape and dtype on every member; partial sums are left on all but the target.
        target: index in the group of the member that gets the result.
        group: the group.
        op: `sum`, `avg` or `max`.

    Raises:
        CommError: `target` is not an index of the group, or `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "tree_reduce")
    group.check_index(target, "tree_reduce to index")
    place = (group.index - target) % group.size
    with built("reduce", "tree", tensor, group, target, op) as row:
        _collect(row, place, group, op)
        if place == 0:
            finish_average(row, op, group.size)


def _collect(row: torch.Tensor, place: int, group: Group, op: str) -> None:
    """Sends this member's sum to its parent once all its children's sums are in it."""
    if not row.numel() or group.size == 1:
        return
    buffer = torch.empty_like(row)
    last = rounds(group.size) - 1
    with group.ledger.hold("communication buffers", buffer.nbytes):
        for step in range(last + 1):
            reach = 1 << (last - step)
            if reach <= place < 2 * reach:
                send(row, (group.index - reach) % group.size, group, step=step)
            elif place < reach and place + reach < group.size:
                recv(buffer, (group.index + reach) % group.size, group, step=step)
                combine(row, buffer, op)
