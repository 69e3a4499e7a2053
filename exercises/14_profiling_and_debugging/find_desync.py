"""find_desync: the first call that the ranks of a group did not all make alike.

Notebook 14. The ranks of a group must make the same collectives in the same order. If one leaves a
call out, takes another shape, or dies, the job hangs, or goes on with garbage: gloo adds float32
to int32 without a word. Nobody sees it where it happens. So every rank keeps a flight log of its
last calls, and after a timeout all logs are compared. Only there lies an answer: all ranks but one
or two look the same, those that hang are mostly victims, and a rank that is just slow is no fault.

The log of a rank is a dict:

- `rank`: the global rank;
- `state`: `running`, or how its program ended: `finished`, `raised`, `killed`;
- `records`: its last calls, in order, of all groups mixed. A ring buffer: older calls are gone, so
  the k-th records of two logs are hardly ever the same call;
- `made`: a dict that says for each group how many calls the rank has begun on it so far, also those
  that are gone from the log. A group on which it began none is missing.

A record is a dict:

- `group`: the global ranks of the group, a tuple;
- `seq`: the number of the call on that group, from 0, counted on each group again. So a call is
  known by group and number;
- `op`, `dtype`, `shape`: `all_reduce`, `float32`, `(4, 6)`;
- `begin`: seconds, on a clock that all ranks share;
- `state`: `finished`; `under way`, begun, while the program does something else; or `waiting`, if
  the program stands still in it. A program stands still in one call at most.

The logs of all ranks are there, in any order, taken at the same time. Rules:

- `difference(made)`: what is not the same in the records of one call; None if all is. Look at `op`
  first, then `dtype`, then `shape`. The odd ranks are those that differ from what most of the ranks
  did; if two sides are equally large, the one with the lowest rank is taken for right.
- `lacking(group, seq, logs)`: the ranks of a group that have not begun a call yet.
- `never_coming(logs)`: the ranks that never make another call. A rank can go on if its program runs
  and does not stand still; also if it stands still in a call that is lacked only by ranks that can
  go on, since those will come. (If nobody lacks it any more, it goes on at once.) All others never
  come: they have ended, or wait for one that never comes, or in a circle.
- `find_desync(logs)`: the first fault, or None. There are three sorts:
  1. a call that ranks made differently, as far as their logs have it: `kind` and `ranks` are those
     of `difference`;
  2. a call in somebody's log that is lacked by ranks whose programs have ended: `missing`, and
     these are the ranks;
  3. a call in somebody's log that is lacked by ranks that never come: `missing`, and these.
  Of several faults, those of sort 1 come first, then those of sort 2: whoever waits is often only
  a victim of one that ended. Within a sort, the call comes first that began first, on any of the
  ranks whose logs have it. (Numbers of different groups cannot be compared.)
  Who calls on a wrong group shows too: in the right one it is missing.

Plain Python. `course_lib.trace` has the same for the course's own logs, so leave it alone.

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
