"""first_rank_first: who calls `prepare` when, how often, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from course_lib.grade.suite import Exercise, Run, because, check, diagnosis

EXERCISE = Exercise(
    title="One prepares, the others wait",
    core=True,
    minutes=15,
    order=4,
    hints=(
        "A barrier ends when every member has called it, so each rank must call it once. It may "
        "stand on different lines for different ranks: what must have happened on the first rank "
        "before it calls the barrier? What must wait until after it on the others?",
        "The first rank: `prepare`, then the barrier. The others: the barrier, then `prepare`. "
        "`group.index` says which of the two this rank is.",
        "`if group.index != 0: barrier(group); return prepare()`. On the first rank the barrier "
        "stands after its call, in the `finally` of a `try`, so that it is called even if "
        "`prepare` raises.",
    ),
    network="torch",
)

PAUSE = 0.1  # seconds of the first rank's work, in which the others must not begin
PATIENCE = 3.0  # seconds that a rank waits in `prepare` for the others that should be there, too
UNHELD = (
    "nothing holds the others back: they must call the barrier before `prepare`, the first rank "
    "after it"
)
# Each data set that cannot be prepared: the rank on which `prepare` raises, and what.
FAILING = (
    ("tokens", 0, OSError("no space left on the disk")),
    ("cache", 0, KeyboardInterrupt("Ctrl-C")),  # no Exception
    ("index", 1, OSError("the file is broken")),
)


# --- what runs on the ranks ----------------------------------------------------------------------
class Prepare:
    """The function that the learner is given: remembers when each call began and ended.

    The clock is the machine's, the same for all ranks; only the order of the times is used.

    Args:
        name: of the data set; each rank marks its coming with a file of that name.
        ranks: the group's.
        rank: this one.
        value: what a call returns.
        error: what it raises, if it does.
    """

    def __init__(
        self,
        name: str,
        ranks: tuple[int, ...],
        rank: int,
        value: str | None,
        error: BaseException | None = None,
    ) -> None:
        self.name, self.ranks, self.rank = name, ranks, rank
        self.value, self.error = value, error
        self.calls: list[list[float]] = []

    def __call__(self) -> str | None:
        """Prepares, or finds what is prepared."""
        times = [time.monotonic()]
        self.calls.append(times)
        self._mark(self.rank).touch()
        if self.error:
            raise self.error
        if self.rank == self.ranks[0]:
            time.sleep(PAUSE)
        else:
            self._wait_for_all(times[0])
        times.append(time.monotonic())
        return self.value

    def _wait_for_all(self, begin: float) -> None:
        """Works for as long as not all have come; those that should be there are there soon."""
        while True:
            came = [self._mark(rank).exists() for rank in self.ranks]
            if all(came) or time.monotonic() - begin > (PATIENCE if came[0] else PAUSE):
                return
            time.sleep(0.002)

    def _mark(self, rank: int) -> Path:
        return Path(f"{self.name}.{rank}")


def _value(name: str, rank: int) -> str:
    return f"{name} as rank {rank} read it"


def drive(learner: Any, group: Any, empty: bool) -> dict[str, Any]:
    """Prepares one data set on all ranks, and then one whose value is None, if asked to."""
    jobs = [Prepare("tokens", group.ranks, group.rank, _value("tokens", group.rank))]
    if empty:
        jobs.append(Prepare("cache", group.ranks, group.rank, None))
    dist.barrier()  # so that all begin together
    values = [learner.first_rank_first(job, group) for job in jobs]
    return {"values": values, "calls": [job.calls for job in jobs]}


def drive_part(learner: Any, group: Any) -> dict[str, Any]:
    """Prepares on all ranks but rank 0, which goes its own way."""
    part = group.split([[0], [group.size - 1, *range(1, group.size - 1)]], "part")
    job = Prepare("tokens", part.ranks, group.rank, _value("tokens", group.rank))
    dist.barrier()
    value = learner.first_rank_first(job, part) if group.rank else None
    return {"values": [value], "calls": [job.calls]}


def drive_failing(learner: Any, group: Any) -> dict[str, Any]:
    """`prepare` raises on one rank; how it ends on this one, and how often it was called here."""
    dist.barrier()
    ends, calls = [], []
    for name, rank, error in FAILING:
        fault = error if group.rank == rank else None
        job = Prepare(name, group.ranks, group.rank, _value(name, group.rank), fault)
        try:
            ends.append(learner.first_rank_first(job, group))
        except BaseException as caught:
            ends.append(_told(caught))
        calls.append(len(job.calls))
    return {"ends": ends, "calls": calls}


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# --- what they must bring back -------------------------------------------------------------------
def _explained(run: Run, cause: str, drive: Callable[..., Any], **options: Any) -> Any:
    """The result of a run; if it ends in a deadlock, the reason is added to it."""
    with because(deadlock="{} " + cause):
        return run(drive, **options)


def _whole(run: Run, world: int = 3) -> Any:
    """All ranks, two data sets in a row."""
    cause = "Each rank calls the barrier once: the first after `prepare`, the others before it."
    return _explained(run, cause, drive, inputs={"empty": True}, world=world)


def _part(run: Run) -> Any:
    cause = "Only the members of the group take part: barrier(group), and group.index."
    return _explained(run, cause, drive_part, world=4)


def _check_order(
    run: Run, calls: list[list[list[float]]], ranks: list[int], unheld: str = UNHELD
) -> None:
    """The first call of `ranks[0]` ends before any other begins; the others overlap."""
    first, *others = ranks
    for rank in ranks:
        run.true(
            bool(calls[rank]),
            "prepare was not called on this rank",
            rank=rank,
            expected="one call on every rank",
            measured="none",
        )
    end = calls[first][0][1]
    early = [rank for rank in others if calls[rank][0][0] < end]
    if early:
        before = [rank for rank in early if calls[rank][0][1] <= calls[first][0][0]]
        run.fail(
            f"prepare began before rank {first} had finished its own",
            rank=early[0],
            expected=f"rank {first} prepares alone, then the others",
            measured=f"{len(early)} of the {len(others)} others began too early",
            cause="the others go first, and the first rank waits for them" if before else unheld,
        )
    late = max(calls[rank][0][0] for rank in others) > min(calls[rank][0][1] for rank in others)
    run.true(
        not late,
        "the others called prepare one after another",
        rank=others[-1],
        expected="all at once, when the first rank has finished",
        measured="one ended before another began",
        cause="one barrier is enough: once the data is prepared, all can read it at the same time",
    )


@check("the first rank prepares alone, then the others together", points=3, code="O")
def check_order(run: Run) -> None:
    """O: three ranks."""
    calls = _whole(run).column("calls")
    _check_order(run, [by_job[0] for by_job in calls], [0, 1, 2])


@check("every rank calls prepare once", points=2, code="O")
@diagnosis("every rank must load the data itself; what the first rank prepared is on the disk")
def check_once(run: Run) -> None:
    """O: also when it returns None."""
    for by_job in run.each(_whole(run).column("calls")):
        for name, calls in zip(("a value", "None"), by_job, strict=True):
            what = f"the number of calls of a prepare that returns {name}"
            run.equal(len(calls), 1, what, likely={
                "called again because its value is None: ask for the index, not for the value":
                    2 if name == "None" else -1,
                "called both before and after the barrier": 2})  # fmt: skip


@check("every rank returns the value of its own call", points=2, code="E")
@diagnosis("return what `prepare` returned, on both branches of the function")
def check_value(run: Run) -> None:
    """E: three ranks, and one alone."""
    for world in (3, 1):
        for rank, values in enumerate(run.each(_whole(run, world).column("values"))):
            likely = {
                "nothing is returned on this rank": [None, None],
                "this is the first rank's value": [_value("tokens", 0), None],
            }
            what = "what two calls returned"
            run.equal(values, [_value("tokens", rank), None], what, likely=likely)


@check("a group without rank 0: the rank with index 0 goes first", points=2, code="O")
@diagnosis("the first rank is the one with group.index 0")
def check_part(run: Run) -> None:
    """O: ranks 3, 1 and 2 of four, in this order."""
    result = _part(run)
    calls = [by_job[0] for by_job in result.column("calls")]
    _check_order(
        run, calls, [3, 1, 2], "rank 0 of the world is not in this group: ask for group.index"
    )
    for rank in (1, 2, 3):
        run.equal(result.outputs[rank]["values"], [_value("tokens", rank)], "the value", rank=rank)


@check("prepare raises on one rank, and nobody waits forever", points=2, code="H")
@diagnosis("let the exception of `prepare` propagate")
def check_failing(run: Run) -> None:
    """H: the first rank raises OSError and KeyboardInterrupt, then another rank raises."""
    cause = (
        "`prepare` raised on rank 0, which then did not make this call of the barrier: each rank "
        "calls it once, the first rank in a `finally`."
    )
    result = _explained(run, cause, drive_failing, world=3)
    for place, (name, failing, error) in enumerate(FAILING):
        for rank, found in enumerate(run.each(result.outputs)):
            when = f"if prepare raises {type(error).__name__} on rank {failing},"
            run.equal(found["calls"][place], 1, f"the number of calls of prepare, {when}", likely={
                "the others are released all the same: they call `prepare` as always": 0
            })  # fmt: skip
            wanted = _told(error) if rank == failing else _value(name, rank)
            what, swallowed = f"what is returned or raised, {when}", {"it was swallowed": None}
            run.equal(found["ends"][place], wanted, what, likely=swallowed)
