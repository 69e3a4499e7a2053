"""Which all-reduce to use: few rounds for a small tensor, few bytes for a large one.

Notebook: 01 Collectives from scratch (the crossover, measured and from the model).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), section 4.5, which switches in the same way.
Costs: those of the algorithm chosen: doubling, halving-doubling or ring.
The production version (NCCL) has a model of each algorithm and protocol, tuned for each machine.
"""

from __future__ import annotations

import torch

from course_lib.comm.algorithms.halving_doubling import (
    doubling_all_reduce,
    halving_doubling_all_reduce,
)
from course_lib.comm.algorithms.ring import ring_all_reduce
from course_lib.comm.group import Group

# Where the measured times cross on two cores and gloo (benchmarks/collectives.py), in bytes.
DOUBLING_BELOW = 512 << 10
DOUBLING_OF_TWO_BELOW = 2 << 20  # two ranks: doubling sends no more than a ring, in half its rounds
HALVING_BELOW = 8 << 20

ALGORITHMS = {
    "doubling": doubling_all_reduce,
    "halving-doubling": halving_doubling_all_reduce,
    "ring": ring_all_reduce,
}


def choose_algorithm(payload: int, size: int) -> str:
    """The name of the algorithm for an all-reduce.

    Args:
        payload: S, bytes of the tensor.
        size: N, ranks in the group.
    """
    if payload < (DOUBLING_OF_TWO_BELOW if size == 2 else DOUBLING_BELOW):
        return "doubling"
    if payload < HALVING_BELOW and size & (size - 1) == 0:
        return "halving-doubling"
    return "ring"


def all_reduce_from_messages(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    """Reduces a tensor over the group, in place, by the algorithm that suits its size.

    Args:
        tensor: same shape and dtype on every member, any number of elements.
        group: the group.
        op: `sum`, `avg` or `max`.

    Raises:
        CommError: `op` and the dtype do not fit.
    """
    ALGORITHMS[choose_algorithm(tensor.nbytes, group.size)](tensor, group, op)
