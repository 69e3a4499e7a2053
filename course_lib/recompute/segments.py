"""Which blocks to recompute: √n segments, or the least extra time under a budget of memory.

Notebook: 10 Activation checkpointing (sqrt_n_plan).
Paper: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), sections 4.1 and 4.3;
Jain et al., "Checkmate" (2020), for the optimum under a budget.
Costs: √n segments keep the activations of 2√n blocks instead of n, for one more forward. The search
takes n² steps for each amount of memory that blocks can add up to: give it mebibytes, not bytes.
The production version (torch's memory budget) decides for each operation of a compiled graph.

The model of memory: a block that is kept holds its activations from its forward to its backward. A
segment that is recomputed holds its first block's input for that time, and all its activations
during its own backward; by then, everything later in the model has been freed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from course_lib.trace.refusal import Refusal


class Segment(NamedTuple):
    """Neighbouring blocks.

    Attributes:
        blocks: their numbers.
        recomputed: whether they run as one checkpointed function; else their activations are kept.
    """

    blocks: range
    recomputed: bool


@dataclass(frozen=True)
class SegmentPlan:
    """What to do with each block of a model.

    Attributes:
        segments: all blocks, in order.
        extra: time that recomputation takes, in the unit of the costs.
        peak: the most memory held at any time, in the unit of the memories.
    """

    segments: tuple[Segment, ...]
    extra: float
    peak: int


class _Partial(NamedTuple):
    """A plan for the blocks so far: what it holds when they have run, and what it will cost."""

    held: int
    extra: float
    segments: tuple[Segment, ...]


def segments_sqrt(n: int) -> list[range]:
    """About √n segments of about √n blocks each, in order; the first ones may be one longer."""
    count = math.isqrt(n - 1) + 1 if n else 0
    ends = accumulate(n // count + (i < n % count) for i in range(count))
    return [range(start, end) for start, end in pairwise([0, *ends])]


def best_segments(
    costs: Sequence[float],
    memories: Sequence[int],
    budget: int,
    inputs: Sequence[int] | None = None,
) -> SegmentPlan:
    """The plan with the least extra time within a budget, by dynamic programming over the blocks.

    Args:
        costs: time of each block's forward.
        memories: what each block's activations take, in whole units such as mebibytes.
        budget: for activations and kept inputs, in the same unit.
        inputs: what each block's input takes; nothing if None.

    Returns:
        The plan; among those that take the same time, one that holds the least after forward.

    Raises:
        Refusal: no plan fits, or the three are of different numbers of blocks.
    """
    n = len(memories)
    inputs = [0] * n if inputs is None else inputs
    if not len(costs) == len(inputs) == n:
        raise Refusal(
            f"a plan for {n} blocks",
            f"{len(costs)} costs and {len(inputs)} inputs",
            "each block has one of each",
        )
    fronts = [[_Partial(0, 0.0, ())]]
    for end in range(1, n + 1):
        found = [
            longer
            for start in range(end)
            for before in fronts[start]
            for longer in _longer(before, range(start, end), costs, memories, inputs)
            if _peak_of_last(longer, memories) <= budget
        ]
        fronts.append(_undominated(found))
    if not fronts[n]:
        raise Refusal(
            f"{n} blocks within {budget} of activation memory",
            f"blocks of {min(memories)} to {max(memories)}, inputs of {min(inputs)} to "
            f"{max(inputs)}",
            "a block's input and activations are needed together for its backward: cut blocks "
            "smaller, or take a smaller batch",
        )
    best = min(fronts[n], key=lambda plan: (plan.extra, plan.held))
    return SegmentPlan(best.segments, best.extra, peak_memory(best.segments, memories, inputs))


def peak_memory(segments: Sequence[Segment], memories: Sequence[int], inputs: Sequence[int]) -> int:
    """The most that a plan holds: at the start of some segment's backward.

    Args:
        segments: all blocks, in order.
        memories: what each block's activations take.
        inputs: what each block's input takes.
    """
    held = peak = 0
    for blocks, recomputed in segments:
        activations = sum(memories[i] for i in blocks)
        held += inputs[blocks.start] if recomputed else activations
        peak = max(peak, held + activations if recomputed else held)
    return peak


def _longer(
    before: _Partial,
    blocks: range,
    costs: Sequence[float],
    memories: Sequence[int],
    inputs: Sequence[int],
) -> Iterator[_Partial]:
    """A plan with one segment more: recomputed, or a single block that is kept."""
    extra = before.extra + sum(costs[i] for i in blocks)
    segments = (*before.segments, Segment(blocks, True))
    yield _Partial(before.held + inputs[blocks.start], extra, segments)
    if len(blocks) == 1:
        segments = (*before.segments, Segment(blocks, False))
        yield _Partial(before.held + memories[blocks.start], before.extra, segments)


def _peak_of_last(plan: _Partial, memories: Sequence[int]) -> int:
    """What is held when backward comes to the plan's last segment."""
    blocks, recomputed = plan.segments[-1]
    return plan.held + (sum(memories[i] for i in blocks) if recomputed else 0)


def _undominated(plans: list[_Partial]) -> list[_Partial]:
    """The plans that no other beats in memory and time: only these can become the best."""
    front: list[_Partial] = []
    for plan in sorted(plans, key=lambda plan: (plan.held, plan.extra)):
        if not front or plan.extra < front[-1].extra:
            front.append(plan)
    return front
