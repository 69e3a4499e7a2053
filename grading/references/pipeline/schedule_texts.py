"""Pipeline schedules that learners return, a list of texts a rank: read, checked, run on paper.

Paper: Narayanan et al., "Megatron-LM" (2021), section 2.2, for what a schedule is measured by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.grade.suite import Run
from course_lib.schedule import Action, Costs, Schedule, ScheduleError, Simulation, simulate

RANKS = 2  # real ones; each answers for every second rank of a pipeline
SHOWN = 14  # actions of a rank that are written out
Sizes = dict[str, int]  # p, m and, if there are chunks, v: in the order of the arguments
Stages = Callable[[int, Sizes], list[int]]  # those of a rank


# --- on the ranks --------------------------------------------------------------------------------
def ask(plan: Callable[..., Any], group: Any, cases: list[Sizes]) -> list[list[Any]]:
    """A driver's part: for each case the lists of the pipeline ranks this one answers for.

    Args:
        plan: the learner's function of a rank and the sizes.
        group: two ranks, as `read` runs it.
        cases: sizes.

    Returns:
        Lists of texts; a text instead of a list if the answer was no such list.
    """
    return [
        [_as_data(plan(rank, *sizes.values())) for rank in range(group.index, sizes["p"], RANKS)]
        for sizes in cases
    ]


def _as_data(answer: Any) -> list[str] | str:
    fits = isinstance(answer, list) and all(isinstance(word, str) for word in answer)
    return answer if fits else repr(answer)[:150]


# --- what they must bring back -------------------------------------------------------------------
@dataclass(frozen=True)
class Plan:
    """One schedule that came back and is complete.

    Attributes:
        run: of the check.
        sizes: p, m, ...
        schedule: what the ranks returned.
    """

    run: Run
    sizes: Sizes
    schedule: Schedule

    @property
    def title(self) -> str:
        """The sizes, as messages begin with them."""
        return title(self.sizes)

    def simulate(self, costs: Costs | None = None) -> Simulation:
        """The schedule in time; fails if the ranks wait for each other."""
        try:
            return simulate(self.schedule, costs)
        except ScheduleError as error:
            return self.run.fail(
                f"{self.title}: {error.found}",
                cause=error.why,
                measured=lines(self.schedule.actions),
            )

    def ends_by(self, costs: Costs, limit: float, formula: str, why: str = "") -> None:
        """Fails if the schedule takes longer than `limit`.

        Args:
            costs: of every stage.
            limit: the longest makespan that is right.
            formula: how the limit is written.
            why: the likely reason.
        """
        done = self.simulate(costs)
        if done.makespan <= limit + 1e-9:
            return
        slowest = max(range(self.schedule.ranks), key=done.idle_inside)
        self.run.fail(
            f"{self.title}, {in_words(costs, self.schedule)}: the schedule takes too long "
            "(· is a unit of waiting)",
            expected=f"at most {limit:g} = {formula}",
            measured=f"{done.makespan:g}; {with_waits(done, slowest)}",
            cause=why,
        )

    def holds(self, limits: Sequence[int], formula: str, what: str, why: str = "") -> None:
        """Fails if a rank holds the activations of too many forwards at once.

        Args:
            limits: for each rank, the most that is right.
            formula: how the limit is written.
            what: what is counted: micro-batches, or forwards of all chunks.
            why: the likely reason.
        """
        done = self.simulate()
        for rank, limit in enumerate(limits):
            count = done.in_flight(rank)
            self.run.true(
                count <= limit,
                f"{self.title}: rank {rank} holds the activations of {count} {what} at once",
                expected=f"at most {limit} = {formula}",
                measured=lines([self.schedule.actions[rank]], rank),
                cause=why,
            )


def read(
    run: Run, drive: Callable[..., Any], cases: list[Sizes], letters: str, stages_of: Stages
) -> list[Plan]:
    """Runs the driver, whose output `plans` is `ask`'s; fails if a schedule is not complete.

    Args:
        run: of the check.
        drive: the suite's driver.
        cases: sizes.
        letters: those that a schedule may use.
        stages_of: the stages of a rank.
    """
    result = run(drive, {"cases": cases}, world=RANKS)
    plans = []
    for place, sizes in enumerate(cases):
        answers = [
            result.outputs[rank % RANKS]["plans"][place][rank // RANKS]
            for rank in range(sizes["p"])
        ]
        actions = [
            _line(run, sizes, rank, answer, letters, stages_of(rank, sizes))
            for rank, answer in enumerate(answers)
        ]
        plans.append(Plan(run, sizes, _schedule(run, sizes, actions)))
    return plans


def _line(
    run: Run, sizes: Sizes, rank: int, answer: Any, letters: str, stages: list[int]
) -> tuple[Action, ...]:
    """The actions of one rank; fails, with the first word that cannot be one of its."""
    what = f"{title(sizes)}: rank {rank}"
    run.true(
        isinstance(answer, list),
        f"{what} returns no list of texts",
        measured=str(answer),
        expected=f"['{stages[0]}F0', ...]",
        cause="" if answer != "None" else "nothing is returned",
    )
    actions = []
    for word in answer:
        try:
            action = Action.parse(word)
        except ScheduleError as error:
            run.fail(
                f"{what} returns {word!r}, which is no action",
                cause=error.why,
                expected=error.asked,
            )
        run.true(
            action.kind in letters,
            f"{what} runs {word}: there is no {action.kind} here",
            expected=f"the letters {', '.join(letters)}",
        )
        run.true(
            action.stage in stages,
            f"{what} runs {word}, but it holds another stage",
            expected=f"actions of stage {' and '.join(map(str, stages))}",
        )
        run.true(
            action.micro < sizes["m"],
            f"{what} runs {word}, but there is no micro-batch {action.micro}",
            expected=f"0 to {sizes['m'] - 1}",
        )
        actions.append(action)
    return tuple(actions)


def _schedule(run: Run, sizes: Sizes, actions: list[tuple[Action, ...]]) -> Schedule:
    """All ranks' actions as one schedule; fails if it is not complete, or in an order of no use."""
    short = next((rank for rank, line in enumerate(actions) if not line), None)
    run.true(short is None, f"{title(sizes)}: the list of rank {short} is empty")
    try:
        return Schedule("from text", tuple(actions), sizes["m"])
    except ScheduleError as error:
        return run.fail(f"{title(sizes)}: {error.found}", cause=error.why, measured=lines(actions))


# --- in words ------------------------------------------------------------------------------------
def title(sizes: Sizes) -> str:
    """`p = 2, m = 3`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def in_words(costs: Costs, schedule: Schedule) -> str:
    """The costs under the names that the tasks use."""
    whole = any(action.kind == "B" for line in schedule.actions for action in line)
    cut = any(action.kind == "I" for line in schedule.actions for action in line)
    parts = [f"tF = {costs.forward:g}"]
    parts += [f"tB = {costs.input + costs.weight:g}"] * whole
    parts += [f"tI = {costs.input:g}, tW = {costs.weight:g}"] * cut
    return ", ".join(parts)


def lines(actions: Sequence[Sequence[Action]], first: int = 0) -> str:
    """`rank 0: 0F0 0F1 ...`, the ranks one after the other, each cut if it is long."""
    return " | ".join(
        f"rank {rank}: {' '.join(map(str, line[:SHOWN]))}{' ...' if len(line) > SHOWN else ''}"
        for rank, line in enumerate(actions, first)
    )


def with_waits(done: Simulation, rank: int) -> str:
    """One rank's actions with a point for every unit of time that it waits before them."""
    words, now = [], 0.0
    for slot in done.slots[rank][:SHOWN]:
        waits = round(slot.begin - now)
        words += ["·" * waits if waits < 7 else f"·×{waits}"] * bool(waits) + [str(slot.action)]
        now = slot.end
    rest = " ..." if len(done.slots[rank]) > SHOWN else ""
    return f"rank {rank}: {' '.join(words)}{rest}"
