"""quorum: decide who takes the next step, and with which batches.

Notebook 17. One place hears from all ranks, decides, and tells them. Both functions are pure: equal
arguments give equal decisions, whatever the order in which dicts were filled. They read no clock
and change no argument.

`quorum(members, heartbeats, now, limits)`: a rank is alive if its last heartbeat came at most
`limits.silent` seconds before `now` and it last made progress at most `limits.stuck` seconds before
`now`.
- More than half of `members` must be alive; otherwise the answer is None. Ranks that are not
  members do not count towards this majority.
- The step is the newest step of the living members. If all of theirs are None, the answer is None.
- Present are the living members that have this step, in ascending order. All other living ranks
  heal, whatever their own step. In ascending order, each of them gets the next present rank as its
  source; after the last present rank comes the first again.

`deal(todo, held, present)`: a present rank keeps the batch that it holds. The batches of all other
ranks go back. Then, in ascending order, each present rank without a batch gets the smallest batch
that is left, if there is one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Heartbeat(NamedTuple):
    """When a rank was last heard from and last made progress, and its step; None: no weights."""

    time: float
    worked: float
    step: int | None


class Limits(NamedTuple):
    """How old a heartbeat and a rank's progress may be, in seconds, both limits included."""

    silent: float
    stuck: float


class Quorum(NamedTuple):
    """The step to begin with, who has its weights, and each healing rank with its source."""

    step: int
    present: list[int]
    healing: dict[int, int]


def quorum(
    members: Sequence[int], heartbeats: Mapping[int, Heartbeat], now: float, limits: Limits
) -> Quorum | None:
    """Returns who takes part in the next step, or None if all must wait.

    Args:
        members: the ranks that took part in the last step that counted.
        heartbeats: one for every rank that was ever heard from; a member may be missing.
        now: the time in seconds, on the clock of the heartbeats.
        limits: see above.
    """
    # BEGIN SOLUTION: quorum
    living = sorted(
        rank
        for rank, heard in heartbeats.items()
        if now - heard.time <= limits.silent and now - heard.worked <= limits.stuck
    )
    stayed = [rank for rank in living if rank in members]
    if 2 * len(stayed) <= len(members):
        return None
    steps = {rank: step for rank in stayed if (step := heartbeats[rank].step) is not None}
    if not steps:
        return None
    newest = max(steps.values())
    present = [rank for rank, step in steps.items() if step == newest]
    others = [rank for rank in living if rank not in present]
    healing = {rank: present[i % len(present)] for i, rank in enumerate(others)}
    return Quorum(newest, present, healing)
    # END SOLUTION


def deal(
    todo: Sequence[int], held: Mapping[int, int], present: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """Returns the batches that are left, ascending, and the batch that each rank now holds.

    Args:
        todo: numbers of the batches that no rank holds, in any order.
        held: the batch of each rank from the last attempt, if that did not count.
        present: ranks, in ascending order.
    """
    # BEGIN SOLUTION: deal
    kept = {rank: batch for rank, batch in held.items() if rank in present}
    left = sorted([*todo, *(batch for rank, batch in held.items() if rank not in present)])
    for rank in present:
        if rank not in kept and left:
            kept[rank] = left.pop(0)
    return left, kept
    # END SOLUTION
