"""First rank first: one rank prepares the data, then the others read what it has prepared.

Notebook 00. `prepare` downloads and converts a data set if it is not on the disk yet, and loads it.
If all ranks of a node call it at once, all of them download, and they overwrite each other's files.
So the first rank calls it alone. When it has finished, the others call it, all at the same time,
and find everything on the disk.

Rules: every rank of the group calls `prepare` exactly once and returns the value of its own call,
whatever that is, None included. The first rank is the one with *index* 0 in the group, which need
not be rank 0 of the world; ranks outside the group do not take part. If `prepare` raises on the
first rank, the exception leaves `first_rank_first` there, and the others are released all the same:
they call `prepare` as always. What it raises on another rank leaves `first_rank_first` on that
rank. All you need is `barrier(group)` of `course_lib.comm`: it returns when all members have called
it.
"""

from collections.abc import Callable
from typing import TypeVar

from course_lib.comm import Group, barrier

Value = TypeVar("Value")


def first_rank_first(prepare: Callable[[], Value], group: Group) -> Value:
    """Calls `prepare` on the first rank of the group, then on the others.

    Args:
        prepare: takes no arguments. Once one call of it has ended, others may run side by side.
        group: the ranks that share a disk.

    Returns:
        What this rank's call of `prepare` returned.
    """
    # BEGIN SOLUTION
    if group.index != 0:
        barrier(group)
        return prepare()
    try:
        return prepare()
    finally:  # also when it raises: the others are waiting
        barrier(group)
    # END SOLUTION
