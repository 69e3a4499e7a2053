"""A job on nodes that fail, computed second by second of a log: what a policy makes of it.

Everything is arithmetic on the log, so a policy's work is the same for every reader. The clock is
in seconds. Between two events of the log the job either computes, saves, or stands still.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

Draw = Callable[[int, int, int], list[int]]
HORIZON = 30 * 24 * 3600
FINE = 10**6  # parts that chance is drawn in


class Machine(NamedTuple):
    """What the function is told, in its order: times in seconds, means of random gaps.

    Attributes:
        nodes: of the machine, spares among them.
        parts: micro-batches of a step.
        node_mtbf: between the failures of one node.
        crash_mtbf: between two crashes of all processes.
        power_mtbf: between two power failures.
        repair: until a node that has failed can be a spare.
        swap: until a spare has a peer's state.
        regroup: standstill when a node leaves or joins.
        restart: standstill after a crash or a power failure.
        to_memory: standstill for a checkpoint in a neighbour's memory.
        to_disk: standstill for a checkpoint on disk.
    """

    nodes: int
    parts: int
    node_mtbf: int
    crash_mtbf: int
    power_mtbf: int
    repair: int
    swap: int
    regroup: int
    restart: int
    to_memory: int
    to_disk: int

    def speed(self, count: int) -> float:
        """Steps in the time of a micro-batch, on so many nodes."""
        return 1 / -(-self.parts // count) if count else 0.0


class Policy(NamedTuple):
    """What the function returns.

    Attributes:
        memory: seconds of computing between two checkpoints in memory.
        disk: the same for those on disk.
        spares: nodes that are not in the job at first.
        minimum: nodes with which the job goes on.
    """

    memory: int
    disk: int
    spares: int
    minimum: int


class Failure(NamedTuple):
    """A line of the log.

    Attributes:
        time: since the start.
        kind: `node`, `crash` or `power`.
        node: which one.
    """

    time: int
    kind: str
    node: int = -1


def log_of(machine: Machine, draw: Draw, horizon: int = HORIZON) -> list[Failure]:
    """Failures with exponential gaps; a node in repair does not fail."""
    log = [Failure(time, "crash") for time in _times(machine.crash_mtbf, draw, horizon)]
    log += [Failure(time, "power") for time in _times(machine.power_mtbf, draw, horizon)]
    for node in range(machine.nodes):
        times = _times(machine.node_mtbf, draw, horizon, machine.repair)
        log += [Failure(time, "node", node) for time in times]
    return sorted(log)


def _times(mean: int, draw: Draw, horizon: int, pause: int = 0) -> list[int]:
    times: list[int] = []
    now = 0
    while True:
        chance = (draw(0, FINE, 1)[0] + 0.5) / FINE
        now += 1 - int(mean * math.log(chance)) + (pause if times else 0)
        if now >= horizon:
            return times
        times.append(now)


def bound(machine: Machine, log: Sequence[Failure], horizon: int = HORIZON) -> float:
    """Work that no policy exceeds.

    At no time do more nodes compute than are not in repair, and none does while a crash or a power
    failure is being recovered from. Both follow from the log alone.
    """
    down = [(f.time, f.time + machine.repair) for f in log if f.kind == "node"]
    still = [(f.time, f.time + machine.restart) for f in log if f.kind != "node"]
    edges = {0, horizon, *(t for pair in down + still for t in pair if t < horizon)}
    ends, work = sorted(edges), 0.0
    for begin, end in zip(ends, ends[1:], strict=False):
        if not any(a <= begin < b for a, b in still):
            working = machine.nodes - sum(a <= begin < b for a, b in down)
            work += (end - begin) * machine.speed(working)
    return work


class Job:
    """A policy that goes through a log. All times are whole seconds.

    Args:
        machine: what the job runs on.
        policy: what is done.

    Attributes:
        work: done and not lost, in steps times the time of a micro-batch.
    """

    def __init__(self, machine: Machine, policy: Policy) -> None:
        self.machine, self.policy = machine, policy
        self.size = machine.nodes - policy.spares
        self.inside, self.idle = set(range(self.size)), set(range(self.size, machine.nodes))
        self.due: list[tuple[int, int, bool]] = []  # when a node is repaired, or (True) joins
        self.now = self.still = 0  # nobody computes before `still`
        self.saving = False
        self.work = self.in_memory = self.on_disk = 0.0
        self.since_memory = self.since_disk = 0  # seconds of computing after a checkpoint

    def run(self, log: Sequence[Failure], horizon: int = HORIZON) -> float:
        """Goes through the log, and returns the work."""
        for failure in log:
            self._go_to(failure.time)
            if failure.kind == "node":
                self._leave(failure.node)
            else:
                self._go_back(failure.kind == "power")
        self._go_to(horizon)
        return self.work

    def _go_to(self, time: int) -> None:
        while self.due and min(self.due)[0] <= time:
            when, node, joins = first = min(self.due)
            self._compute(when)
            self.due.remove(first)
            if joins:
                self.inside.add(node)
                self._stand(self.machine.regroup)
            else:
                self.idle.add(node)
            self._fill()
        self._compute(time)

    def _compute(self, until: int) -> None:
        """Computes, saves and stands still; no node comes or goes before."""
        while self.now < until:
            if self.now < self.still:
                self.now = min(self.still, until)
                if self.saving and self.now == self.still:
                    self._saved()
            elif len(self.inside) < self.policy.minimum:
                self.now = until
            else:
                self._work(until - self.now)

    def _work(self, seconds: int) -> None:
        """Until the next checkpoint at most; then begins it."""
        left = (self.policy.memory - self.since_memory, self.policy.disk - self.since_disk)
        seconds = min(seconds, *left)
        self.now += seconds
        self.work += seconds * self.machine.speed(len(self.inside))
        self.since_memory += seconds
        self.since_disk += seconds
        if seconds in left:
            self.saving = True
            cost = self.machine.to_disk if self._disk_is_due() else self.machine.to_memory
            self.still = self.now + cost

    def _disk_is_due(self) -> bool:
        return self.since_disk == self.policy.disk

    def _saved(self) -> None:
        if self._disk_is_due():
            self.on_disk, self.since_disk = self.work, 0
        self.in_memory, self.since_memory, self.saving = self.work, 0, False

    def _stand(self, seconds: int) -> None:
        """Stands still; a checkpoint that is being saved is void, and begins again."""
        self.still = max(0 if self.saving else self.still, self.now + seconds)
        self.saving = False

    def _leave(self, node: int) -> None:
        self.due = [each for each in self.due if each[1] != node]
        self.due.append((self.now + self.machine.repair, node, False))
        self.idle.discard(node)
        if node in self.inside:
            self.inside.remove(node)
            self._stand(self.machine.regroup)
            if not self.inside:
                self._go_back(power=True)  # nobody is left who has the state
        self._fill()

    def _fill(self) -> None:
        """Spares take the places that are free."""
        joining = sum(joins for *_, joins in self.due)
        for node in sorted(self.idle)[: self.size - len(self.inside) - joining]:
            self.idle.remove(node)
            self.due.append((self.now + self.machine.swap, node, True))

    def _go_back(self, power: bool) -> None:
        self.work = self.on_disk if power else self.in_memory
        self.in_memory = self.work
        self.since_memory = self.since_disk = 0
        self.saving, self.still = False, self.now + self.machine.restart
