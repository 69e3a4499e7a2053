"""What happened in a training that was disturbed: enough to draw it, and to check each step of it.

Notebook: 17 Training through failures.
Source: torchft's quorum log, and the flight recorder's habit of writing down before it is needed.
Costs a line a step.
The production version sends such records to a database, from which alarms are raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from course_lib.failures.goodput import Span


class Job(Protocol):
    """A training, as one process of it; made by a function that gives all ranks the same."""

    def weights(self) -> torch.Tensor:
        """All weights, flat: of the shape and dtype of a gradient."""

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        """Loss and flat gradient of a batch, which depend on the weights and its number alone."""

    def apply(self, mean: torch.Tensor) -> None:
        """One step with a mean of gradients."""

    def state(self) -> Any:
        """All that the next step depends on: weights, optimizer, positions, random numbers."""

    def load(self, state: Any) -> None:
        """Goes on from another process's state."""


class Fault(NamedTuple):
    """Something that befalls a rank.

    Attributes:
        time: when, in seconds since the first step.
        kind: `kill` (SIGKILL), `freeze` (SIGSTOP), or `cut` (nothing comes in or goes out).
        rank: whom.
        seconds: how long it stays frozen or cut off; a killed one's replacement comes after it.
    """

    time: float
    kind: str
    rank: int
    seconds: float


class Attempt:
    """A step under way.

    Attributes:
        number: of the attempt; what is said about an older one is ignored.
        members: who must confirm it.
        batches: which rank has which.
        losses: of those who have confirmed.
        whole: healing ranks that have caught up, and `again` those whose peer was lost.
    """

    def __init__(self, number: int, members: Sequence[int], batches: dict[int, int]) -> None:
        self.number, self.members, self.batches = number, tuple(members), batches
        self.begin = time.monotonic()
        self.losses: dict[int, float] = {}
        self.whole: set[int] = set()
        self.again: set[int] = set()


class Plan(NamedTuple):
    """How a training survives.

    Attributes:
        way: `quorum`; or all go back to the last checkpoint, in `memory` or on the `disk`.
        every: steps between two checkpoints; for `quorum` none are made.
        startup: seconds that it takes to start the whole job again, for `disk`: a scheduler,
            containers, communicators and compilation, none of which there is here.
        kept: the file, for `disk`; one that is there from before is removed.
    """

    way: str = "quorum"
    every: int = 0
    startup: float = 0.0
    kept: Path | None = None


class Happening(NamedTuple):
    """A change of one rank's situation, seconds after the first step.

    Attributes:
        time: when.
        rank: whose.
        what: `kill`, `freeze`, `cut` (what befell it), `over` (it is back, or was replaced),
            `out` (it is no longer in the quorum), `heals` (it is, and gets its state), `works`.
    """

    time: float
    rank: int
    what: str


class Counted(NamedTuple):
    """A step that all members have confirmed.

    Attributes:
        begin: when it was dealt out, in seconds after the first step.
        end: when the last member had confirmed it.
        step: its number, from 0.
        batches: which rank's batch counted.
        losses: of each of these ranks.
    """

    begin: float
    end: float
    step: int
    batches: dict[int, int]
    losses: dict[int, float]

    @property
    def loss(self) -> float:
        """Mean over the batches."""
        return sum(self.losses.values()) / len(self.losses)


@dataclass
class Record:
    """A whole run.

    Attributes:
        ranks: how many there were.
        counted: the steps that count, in order.
        happenings: in order of time.
        attempts: how many steps were begun.
        lost: batches that had counted, and no longer did after a return to a checkpoint.
        seconds: from the first step to the last.
        states: of each rank that was whole at the end.
    """

    ranks: int
    counted: list[Counted] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    attempts: int = 0
    lost: int = 0
    seconds: float = 0.0
    states: dict[int, Any] = field(default_factory=dict)

    @property
    def batches(self) -> list[int]:
        """The numbers of all batches that counted, in the order in which they did."""
        return [batch for step in self.counted for batch in sorted(step.batches.values())]

    def spans(self, seconds: float) -> list[Span]:
        """A log for `goodput`: each batch that counted as a step of so many seconds."""
        log = [Span(0.0, self.seconds, "all")]
        for step in self.counted:
            for batch in step.batches.values():
                log.append(Span(max(0.0, step.end - seconds), step.end, "step", batch))
        return log

    def spells(self) -> list[tuple[int, float, float, str]]:
        """(rank, begin, end, situation) for a picture; a fault is shown until it is over."""
        found = []
        for rank in range(self.ranks):
            begin, states = 0.0, {"fault": "", "place": "works"}
            for happened in [h for h in self.happenings if h.rank == rank]:
                found.append((rank, begin, happened.time, states["fault"] or states["place"]))
                begin = happened.time
                if happened.what in ("kill", "freeze", "cut"):
                    states["fault"] = happened.what
                elif happened.what == "over":
                    states["fault"] = ""
                else:
                    states["place"] = happened.what
            found.append((rank, begin, self.seconds, states["fault"] or states["place"]))
        return [spell for spell in found if spell[2] > spell[1]]


def one_process(make: Callable[[], Job], counted: Sequence[Counted]) -> Job:
    """The same training in one process: the batches that counted, step by step, in their order."""
    job = make()
    for step in counted:
        gradients = [job.gradient(batch)[1] for batch in sorted(step.batches.values())]
        job.apply(ordered_mean(gradients))
    return job


def ordered_mean(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean, added up in the order of `parts`: a sum of floats depends on its order."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total / len(parts)
