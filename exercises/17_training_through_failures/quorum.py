"""quorum: who makes the next step, and with which batches.

Notebook 17. One place hears all ranks, decides, and tells them. Both functions are pure: equal
arguments, equal decision, in whatever order dicts were filled. Read no clock; change no argument.

`quorum(members, heartbeats, now, limits)`. A rank is alive if it was heard of at most
`limits.silent` seconds ago, and got on with its work at most `limits.stuck` seconds ago.
- More than half of `members` must be alive; else the answer is None. Ranks that are no members do
  not help.
- The step is the newest that a living member has; if none has any, None.
- Present are the living members with that step, ascending. All other living ranks heal, whatever
  step they have: in ascending order, each from the next of the present, round and round.

`deal(todo, held, present)`. A present rank keeps the batch that it holds. Batches of all others go
back. Then, in ascending order, each present rank without a batch gets the smallest in `todo`.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Heartbeat(NamedTuple):
    """When a rank was heard of, when it last got on, and its step (None: it has no weights)."""

    time: float
    worked: float
    step: int | None


class Limits(NamedTuple):
    """Seconds."""

    silent: float
    stuck: float


class Quorum(NamedTuple):
    """The step to begin with, who has its weights, and who gets them from whom."""

    step: int
    present: list[int]
    healing: dict[int, int]


def quorum(
    members: Sequence[int], heartbeats: Mapping[int, Heartbeat], now: float, limits: Limits
) -> Quorum | None:
    """Who takes part in the next step, or None if all must wait.

    Args:
        members: who took part in the last step that counted.
        heartbeats: of every rank that was ever heard of.
        now: seconds, on the clock of the heartbeats.
        limits: see above.
    """
    raise NotImplementedError("quorum: quorum")


def deal(
    todo: Sequence[int], held: Mapping[int, int], present: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """What is left to do, ascending, and which rank now holds which batch.

    Args:
        todo: numbers of batches that nobody holds.
        held: rank to batch, of the last attempt, if it did not count.
        present: ascending.
    """
    raise NotImplementedError("quorum: deal")
