"""A run on a part of a larger world, its ranks not ascending, read as if it were a whole world.

What a suite expects is written for a world of N ranks. In a group of N ranks it is the same, with
indices for ranks; so a check that passes on the world can be repeated on such a group as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from course_lib.grade.checks import CheckFailed
from course_lib.grade.faults import RunFault
from course_lib.grade.judge.bench import Result
from course_lib.grade.rank.places import RANKS
from course_lib.trace import Ledger

CAUSE = (
    "on the world this is right: places, peers and sizes are those of the group "
    "(`group.index`, `group.size`), not of the world"
)


CUTS = ("parts", "paired")  # inputs of drivers by which they cut their world


def ranks_of(size: int) -> list[int]:
    """The ranks of a group of this size: all but the first of one rank more, from the last."""
    return list(range(size, 0, -1))


def cuts_the_world(inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the driver makes groups of the world itself, which takes all ranks of the world."""
    return any(given.get(name) for given in inputs for name in CUTS)


def spread(inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The inputs of a group's members, given to the ranks of a world with one rank more."""
    ranks = ranks_of(len(inputs))
    given: list[dict[str, Any]] = [{RANKS: ranks}]
    return given + [{**inputs[ranks.index(rank)], RANKS: ranks} for rank in sorted(ranks)]


def gathered(result: Result) -> Result:
    """What the members brought back, in the order of their index, with indices for ranks."""
    if result.fault is not None:
        return replace(result, world=result.world - 1)
    ranks = ranks_of(result.world - 1)
    return replace(
        result,
        world=len(ranks),
        outputs=[result.outputs[rank] for rank in ranks],
        ledgers=[_with_indices(result.ledgers[rank], ranks) for rank in ranks],
    )


def _with_indices(ledger: Ledger, ranks: list[int]) -> Ledger:
    """The ledger as its rank would have it, were the group the world."""
    data = ledger.to_dict()
    place = {rank: index for index, rank in enumerate(ranks)} | {-1: -1}
    data["rank"] = place[ledger.rank]
    for record in (*data["events"], *data["spans"]):
        record["rank"] = place[record["rank"]]
    for event in data["events"]:
        event["group"] = [place.get(rank, rank) for rank in event["group"]]
        event["peer"] = place.get(event["peer"], event["peer"])
    return Ledger.from_dict(data)


def said_of_group(error: CheckFailed | RunFault, size: int) -> CheckFailed | RunFault:
    """A failure on such a group, with its ranks and with the cause that the world rules out."""
    ranks = ranks_of(size)
    where = f"in the group of {'ranks' if size > 1 else 'rank'} {', '.join(map(str, ranks))}"
    if isinstance(error, RunFault):
        fault = error.fault
        cause = f"{CAUSE}. {fault.cause}" if fault.cause else CAUSE
        said = replace(fault, message=f"{where}: {fault.message}", cause=cause)
        return RunFault(said, error.output)
    rank = error.rank if error.rank is None or error.rank >= size else ranks[error.rank]
    message = f"{where}: {error.message}"
    return CheckFailed(message, rank, error.expected, error.measured, CAUSE)
