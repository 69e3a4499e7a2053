"""A training that survives, as one call: the machine room, its coordinator, and what they record.

Notebook: 17 Training through failures.
Source: torchft's trainer, whose lighthouse is our coordinator.
Costs 30 ms a process, and what a step costs (see `wire.py`).
The production version runs one such process on each machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from course_lib.failures.coordinator import Coordinator
from course_lib.failures.quorum import Limits
from course_lib.failures.record import Fault, Job, Plan, Record
from course_lib.failures.room import HURTS, Room
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.trace import Refusal

WAYS = ("quorum", "memory", "disk")
MOST = 12  # ranks: each gets a connection to each other one in one message, and streams
LIMITS, QUORUM = Limits(silent=1.0, stuck=20.0), Plan()


def survive(
    make: Callable[[], Job],
    ranks: int,
    batches: int,
    faults: Sequence[Fault] = (),
    limits: Limits = LIMITS,
    plan: Plan = QUORUM,
    server: ForkServer | None = None,
) -> Record:
    """Trains on real processes until every batch has counted once, whatever befalls them.

    Args:
        make: makes the job of a rank, the same on all; any function, pickled by value.
        ranks: how many processes, at most 12. Each stands for a replica group.
        batches: how many, at least one; each is made by one rank.
        faults: what befalls the ranks.
        limits: after how long a rank counts as lost. `silent` must be longer than the pauses of a
            busy machine, and `stuck` longer than a gradient takes.
        plan: how it survives.
        server: a preloaded process to fork ranks from; None starts one (seconds).

    Returns:
        What happened. All processes have ended.

    Raises:
        Refusal: too many ranks, no batch, or a plan or a fault that cannot be.
        RuntimeError: a job raised something, a process did not begin, or there was no quorum for
            two minutes.
    """
    if not 1 <= ranks <= MOST or plan.way not in WAYS or (plan.way == "disk") != bool(plan.kept):
        raise Refusal(
            f"survive on {ranks} ranks by {plan}",
            f"1 to {MOST} ranks, and {', '.join(WAYS)}",
            "each rank is connected to each other; a disk needs a file, the others have none",
        )
    strange = [f for f in faults if f.kind not in HURTS or not 0 <= f.rank < ranks]
    if strange or batches < 1:
        raise Refusal(
            f"survive {batches} batches and {len(faults)} faults on {ranks} ranks",
            f"{strange[0]}" if strange else "no batch",
            f"a fault is {', '.join(HURTS)}, of a rank that there is; and there is work to do",
        )
    if server is None:
        with ForkServer() as own:
            return survive(make, ranks, batches, faults, limits, plan, own)
    if plan.kept is not None:
        plan.kept.unlink(missing_ok=True)  # another run's: its weights are not where this begins
    kept = None if plan.way == "quorum" else str(plan.kept or "")
    with Room(make, ranks, server, limits.silent / 8, kept) as room:
        return Coordinator(room, batches, faults, limits, plan).run()
