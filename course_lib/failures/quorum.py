"""Who takes the next step? One decision, from what was heard of each rank and when.

Notebook: 17 Training through failures (quorum).
Source: torchft's lighthouse; the majority rule is that of Paxos and Raft.
Costs one small message a rank and step to whoever decides.
The production version (torchft) also waits a moment for more ranks before it decides.

The decision is a function: it reads no clock and asks nobody, so that two who have heard the same
decide the same, and a test can try every case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Heartbeat(NamedTuple):
    """What was last heard of a rank.

    Attributes:
        time: when it was heard, in seconds on the clock of whoever decides.
        worked: when its work last made progress; a thread of its own sends heartbeats, and may
            go on doing so while the work hangs.
        step: how many steps its weights have seen, in the book of whoever decides, who adds one
            for each step that counts; None if it has no weights yet.
    """

    time: float
    worked: float
    step: int | None


class Limits(NamedTuple):
    """After how long a rank no longer counts, in seconds.

    Attributes:
        silent: without any heartbeat: killed, frozen or cut off.
        stuck: with heartbeats, but no work.
    """

    silent: float
    stuck: float


class Quorum(NamedTuple):
    """Who takes part in the next step.

    Attributes:
        step: how many steps the weights have seen that it begins with.
        present: ranks that have these weights, in ascending order: their batches count.
        healing: rank that has not, and from whom it gets them: it takes part without a batch.
    """

    step: int
    present: tuple[int, ...]
    healing: dict[int, int]

    @property
    def members(self) -> tuple[int, ...]:
        """Everybody who takes part."""
        return tuple(sorted([*self.present, *self.healing]))


def alive(heartbeat: Heartbeat, now: float, limits: Limits) -> bool:
    """Whether a rank was heard of, and got on with its work, within the limits."""
    return now - heartbeat.time <= limits.silent and now - heartbeat.worked <= limits.stuck


def quorum(
    members: Collection[int], heartbeats: Mapping[int, Heartbeat], now: float, limits: Limits
) -> Quorum | None:
    """Who takes the next step, or None: then all wait.

    More than half of the last step's members must be alive. After a cut, at most one side has them,
    so there are never two quorums that train different weights.

    Args:
        members: who took part in the last step that counted; at first, all ranks.
        heartbeats: from every rank that ever sent one, including ranks that are not members.
        now: the time, on the clock of the heartbeats.
        limits: after how long a rank no longer counts.

    Returns:
        The newest step that a member has, the members that have it, and a source for each other
        rank, in turn. A rank that was away is never a source, whatever step it has.
    """
    living = sorted(r for r, heard in heartbeats.items() if alive(heard, now, limits))
    stayed = [rank for rank in living if rank in members]
    if 2 * len(stayed) <= len(members):
        return None
    steps = {rank: step for rank in stayed if (step := heartbeats[rank].step) is not None}
    if not steps:
        return None
    newest = max(steps.values())
    present = tuple(rank for rank, step in steps.items() if step == newest)
    others = [rank for rank in living if rank not in present]
    healing = {rank: present[i % len(present)] for i, rank in enumerate(others)}
    return Quorum(newest, present, healing)
