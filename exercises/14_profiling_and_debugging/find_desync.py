"""find_desync: find the first call that the ranks of a group did not all make in the same way.

Notebook 14. The ranks of a group must make the same collectives in the same order. If one rank
skips a call, uses a different shape, or dies, the job hangs or continues with garbage: gloo adds
float32 to int32 without an error. Nothing shows the fault where it happens. So every rank keeps a
flight log of its last calls, and after a timeout all logs are compared. Most ranks look the same,
those that hang are mostly victims, and a rank that is only slow is not at fault.

The log of a rank is a dict:

- `rank`: the global rank;
- `state`: `running`, or how its program ended: `finished`, `raised`, `killed`;
- `records`: its last calls, in order, of all groups mixed. A ring buffer: older calls are gone, so
  the k-th records of two logs are hardly ever the same call;
- `made`: a dict that says for each group how many calls the rank has begun on it so far, also those
  that are gone from the log. A group on which it began none is missing.

A record is a dict:

- `group`: the global ranks of the group, a tuple;
- `seq`: the number of the call on that group, from 0, counted separately on each group. So group
  and number identify a call;
- `op`, `dtype`, `shape`: `all_reduce`, `float32`, `(4, 6)`;
- `begin`: seconds, on a clock that all ranks share;
- `state`: `finished`; `under way`, begun, while the program does something else; or `waiting`, if
  the program stands still in it. A program waits in at most one call.

The logs of all ranks are there, in any order, taken at the same time. They stay as they are. Rules:

- `difference(made)`: what differs between the records of one call; None if nothing does. Look at
  `op` first, then `dtype`, then `shape`. The odd ranks are those that differ from what most of the
  ranks did; if two sides are equally large, the one with the lowest rank counts as right.
- `lacking(group, seq, logs)`: the ranks of a group that have not begun a call yet.
- `never_coming(logs)`: the ranks that never make another call. A rank can continue if its program
  runs and is not waiting. It can also continue if it waits in a call that only ranks lack that can
  continue, because those will come. (If no rank lacks the call any more, it continues at once.) All
  other ranks never come: they have ended, or wait for a rank that never comes, or wait in a circle.
- `find_desync(logs)`: the first fault, or None. There are three kinds:
  1. a call that ranks made differently, as far as their logs have it: `kind` and `ranks` are those
     of `difference`;
  2. a call in some log that ranks lack whose programs have ended: `missing`, with these ranks;
  3. a call in some log that ranks lack which never come: `missing`, with these ranks.

  If there are several faults, those of kind 1 come first, then those of kind 2: a rank that waits
  is often only a victim of one that ended. Within a kind, the call that began first, on any of the
  ranks whose logs have it, comes first. (Numbers of different groups cannot be compared.) A call on
  the wrong group shows up too: it is missing in the right one.

Plain Python. `course_lib.trace` has the same for the course's own logs, so do not use it.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Log = Mapping[str, Any]
Record = Mapping[str, Any]


class Finding(NamedTuple):
    """What is wrong.

    Attributes:
        kind: `op`, `dtype`, `shape` or `missing`.
        group: global ranks.
        seq: number of the call on that group.
        ranks: the ranks at fault, in ascending order.
    """

    kind: str
    group: tuple[int, ...]
    seq: int
    ranks: tuple[int, ...]


def difference(made: Mapping[int, Record]) -> tuple[str, tuple[int, ...]] | None:
    """What differs in one call.

    Args:
        made: global rank to its record of the call, in any order.

    Returns:
        `op`, `dtype` or `shape`, and the odd ranks in ascending order; None if nothing differs.
    """
    raise NotImplementedError("find_desync: difference")


def lacking(group: tuple[int, ...], seq: int, logs: Sequence[Log]) -> set[int]:
    """The ranks of the group that have not begun its call number `seq`."""
    raise NotImplementedError("find_desync: lacking")


def never_coming(logs: Sequence[Log]) -> set[int]:
    """The ranks that never make another call."""
    raise NotImplementedError("find_desync: never coming")


def find_desync(logs: Sequence[Log]) -> Finding | None:
    """The first fault; None if all calls agree and every rank can go on or has done its part."""
    raise NotImplementedError("find_desync: find_desync")
