"""Where a layout puts the blocks, and for how many micro-batches each stage holds activations.

Notebook: 08 Pipeline parallel, 15 Choosing a strategy (memory_model).
Paper: Narayanan et al., "Megatron-LM" (2021), section 2.2; Korthikanti et al. (2022), section
4.2.3, for the in-flight micro-batches of interleaved stages.
Costs nothing: it walks through the lists of the schedule that the pipeline runs.
The production version hands the cut of the model over by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import stage_costs
from course_lib.plan.time.timing import layers_of
from course_lib.schedule import Schedule, make_schedule, split_model


def schedule_of(layout: Layout, micro_batches: int | None = None) -> Schedule:
    """The schedule that a layout names.

    Args:
        layout: its pp, chunks and schedule.
        micro_batches: how many; those of the layout if None.

    Raises:
        ScheduleError: there is none of this name, or it cannot be made for these numbers.
    """
    m = layout.micro_batches if micro_batches is None else micro_batches
    return make_schedule(layout.schedule, layout.pp, m, layout.chunks)


def enough_micro_batches(layout: Layout) -> int:
    """The fewest micro-batches that hold as much at once: from 2p on, all but GPipe repeat."""
    p, m = layout.pp, layout.micro_batches
    if layout.schedule == "GPipe":
        return m
    return min(m, 2 * p + m % p)  # with the same rest, which the interleaved one refuses


def even_stages(config: ModelConfig, count: int) -> list[range]:
    """The blocks of each stage, equally many in each, as most programs and `simulate` cut them."""
    ends = list(accumulate(layers_of(config.layers, count), initial=0))
    return [range(start, end) for start, end in zip(ends, ends[1:], strict=False)]


@dataclass(frozen=True)
class Stages:
    """A pipeline of a model.

    Attributes:
        schedule: who does what when.
        blocks: of each stage.
    """

    schedule: Schedule
    blocks: Sequence[range]

    @classmethod
    def of(cls, config: ModelConfig, layout: Layout) -> Stages:
        """As `train` cuts a model: so that the most expensive stage costs as little as possible.

        Raises:
            ScheduleError: the schedule cannot be made, or has more stages than blocks.
        """
        schedule = schedule_of(layout, enough_micro_batches(layout))
        return cls(schedule, split_model(stage_costs(config), schedule.stages))

    @property
    def last(self) -> int:
        """The stage with the output layer."""
        return self.schedule.stages - 1

    @cached_property
    def of_rank(self) -> tuple[Sequence[int], ...]:
        """The stages of each rank."""
        return tuple(self.schedule.stages_of(rank) for rank in range(self.schedule.ranks))

    @cached_property
    def in_flight(self) -> tuple[tuple[Mapping[int, int], ...], ...]:
        """For each rank the moments at which it holds most: micro-batches of each stage.

        A forward's activations are held until the end of its `B`, or of its `W`.
        """
        return tuple(_moments(self.schedule, rank) for rank in range(self.schedule.ranks))


def _moments(schedule: Schedule, rank: int) -> tuple[Mapping[int, int], ...]:
    """The different counts right before something is freed."""
    counts = dict.fromkeys(schedule.stages_of(rank), 0)
    moments: dict[tuple[int, ...], Mapping[int, int]] = {}
    for action in schedule.actions[rank]:
        if action.kind == "F":
            counts[action.stage] += 1
        elif action.kind in "BW":
            moments[tuple(counts.values())] = dict(counts)
            counts[action.stage] -= 1
    return tuple(moments.values())
