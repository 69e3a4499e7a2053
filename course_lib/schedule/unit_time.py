"""Runs a schedule on paper: when each action begins and ends, how long ranks wait, what they hold.

Notebook: 08 Pipeline parallel (gpipe_step, one_f_one_b, interleaved_1f1b, zero_bubble).
Paper: Narayanan et al., "Megatron-LM" (2021), section 2.2 (bubble); Qi et al., "Zero Bubble
Pipeline Parallelism" (2023), section 2 (tF, tB, tW; here forward, input, weight).
Costs nothing on the wire: it needs no processes, and finds a deadlock without one.
Production planning needs seconds: plan/time adds what products and messages cost on a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.schedule.action import Action, ScheduleError
from course_lib.schedule.schedule import Schedule


@dataclass(frozen=True)
class Costs:
    """How long one stage takes for one micro-batch, in any unit of time.

    Attributes:
        forward: tF, of `F`.
        input: tI, of `I`: gradients of the stage's input (tB in the zero-bubble paper).
        weight: tW, of `W`: gradients of its weights. `B` takes tI + tW.
        message: from the end of an action until its result is on another rank. Messages travel
            beside computation and do not wait for each other.
    """

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0
    message: float = 0.0

    def of(self, action: Action) -> float:
        """How long an action takes."""
        return {
            "F": self.forward,
            "B": self.input + self.weight,
            "I": self.input,
            "W": self.weight,
        }[action.kind]


@dataclass(frozen=True)
class Slot:
    """When a rank was busy with an action."""

    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class Simulation:
    """A schedule in time.

    Attributes:
        schedule: what was run.
        slots: for each rank its actions with begin and end.
    """

    schedule: Schedule
    slots: tuple[tuple[Slot, ...], ...]

    @property
    def makespan(self) -> float:
        """From the first action's begin to the last one's end."""
        return max(slot.end for line in self.slots for slot in line)

    def idle(self, rank: int) -> float:
        """How long a rank waits, from the first action of all to the last."""
        return self.makespan - sum(slot.end - slot.begin for slot in self.slots[rank])

    def idle_inside(self, rank: int) -> float:
        """How long a rank waits between its own first and last action."""
        line = self.slots[rank]
        return line[-1].end - line[0].begin - sum(slot.end - slot.begin for slot in line)

    @property
    def bubble(self) -> float:
        """Time waited divided by time worked, over all ranks: (p-1)/m for GPipe and 1F1B."""
        idle = sum(self.idle(rank) for rank in range(self.schedule.ranks))
        return idle / (self.schedule.ranks * self.makespan - idle)

    def held(self, rank: int) -> list[tuple[float, int]]:
        """How many forwards' activations a rank holds: (time, count) at every change.

        They are there from a forward's begin to the end of its `B`, or of its `W`.
        """
        line, count = [], 0
        for slot in self.slots[rank]:  # one after the other: what ends as another begins goes first
            if slot.action.kind in "FBW":
                begins = slot.action.kind == "F"
                count += 1 if begins else -1
                line.append((slot.begin if begins else slot.end, count))
        return line

    def in_flight(self, rank: int) -> int:
        """The most forwards of one chunk whose activations a rank holds at once."""
        return max((count for _, count in self.held(rank)), default=0)


def simulate(schedule: Schedule, costs: Costs | Sequence[Costs] | None = None) -> Simulation:
    """Runs a schedule in unit time: an action begins when its rank is free and has its inputs.

    Args:
        schedule: what to run.
        costs: of every stage, or one for each stage; by default 1 for each of F, I and W.

    Raises:
        ScheduleError: ranks wait for each other in a cycle (it names the action of each); there
            are not as many costs as stages; one is negative or not finite; or nothing takes time.
    """
    by_stage = _of_stages(schedule, Costs() if costs is None else costs)
    ends: dict[Action, float] = {}
    home = schedule.placement
    slots: list[list[Slot]] = [[] for _ in schedule.actions]

    def ready(action: Action, rank: int) -> float | None:
        """When the inputs of an action are on its rank; None if that is not known yet."""
        times = [0.0]
        for group in action.needs(schedule.stages):
            over = next((a for a in group if a in ends), None)
            if over is None:
                return None
            travel = by_stage[over.stage].message if home[over.stage] != rank else 0.0
            times.append(ends[over] + travel)
        return max(times)

    def advance(rank: int) -> Iterator[Slot]:
        """Every action that a rank can run with what is there."""
        line = schedule.actions[rank]
        while len(slots[rank]) < len(line):
            action = line[len(slots[rank])]
            begin = ready(action, rank)
            if begin is None:
                return
            if slots[rank]:
                begin = max(begin, slots[rank][-1].end)
            ends[action] = begin + by_stage[action.stage].of(action)
            slots[rank].append(Slot(action, begin, ends[action]))
            yield slots[rank][-1]

    while sum(map(len, slots)) < sum(map(len, schedule.actions)):
        moved = [slot for rank in range(schedule.ranks) for slot in advance(rank)]
        if not moved:
            raise _deadlock(schedule, [len(line) for line in slots], ends)
    return Simulation(schedule, tuple(tuple(line) for line in slots))


def _of_stages(schedule: Schedule, costs: Costs | Sequence[Costs]) -> list[Costs]:
    """The costs of every stage."""
    by_stage = [costs] * schedule.stages if isinstance(costs, Costs) else list(costs)
    asked = f"a run of the schedule {schedule.name} of {schedule.stages} stages"
    if len(by_stage) != schedule.stages:
        raise ScheduleError(asked, f"the costs of {len(by_stage)} stages", "each stage has its own")
    for stage, cost in enumerate(by_stage):
        times = (cost.forward, cost.input, cost.weight, cost.message)
        if not all(0 <= time < math.inf for time in times):
            raise ScheduleError(asked, f"{cost} for stage {stage}", "times are numbers from 0 on")
    if not any(cost.forward + cost.input + cost.weight for cost in by_stage):
        raise ScheduleError(asked, "no action that takes time", "waiting is measured in work")
    return by_stage


def _deadlock(schedule: Schedule, done: Sequence[int], ends: dict[Action, float]) -> ScheduleError:
    """Who waits for what, when nobody can go on."""
    waiting = []
    for rank, line in enumerate(schedule.actions):
        if done[rank] < len(line):
            action = line[done[rank]]
            missing = next(
                group[0]
                for group in action.needs(schedule.stages)
                if not any(a in ends for a in group)
            )
            owner = schedule.placement[missing.stage]
            waiting.append(f"rank {rank}'s {action} waits for {missing} of rank {owner}")
    return ScheduleError(
        f"a run of the schedule {schedule.name}",
        "a deadlock: " + "; ".join(waiting),
        "each of these ranks waits for a result that another of them will compute only later",
    )
