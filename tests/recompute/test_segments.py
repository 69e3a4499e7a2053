"""Plans of what to recompute: against every possible plan, and against what is really held."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from course_lib.recompute.checkpoint import checkpoint
from course_lib.recompute.segments import Segment, best_segments, peak_memory, segments_sqrt
from course_lib.trace import Refusal
from course_lib.trace.memory import LiveMemory


@pytest.mark.parametrize("n", [0, 1, 2, 3, 9, 10, 16, 17, 100])
def test_about_sqrt_n_segments_of_about_sqrt_n(n: int) -> None:
    segments = segments_sqrt(n)
    assert [i for segment in segments for i in segment] == list(range(n))
    assert len(segments) == math.ceil(math.sqrt(n))
    sizes = {len(segment) for segment in segments}
    assert not sizes or max(sizes) <= math.ceil(math.sqrt(n))
    assert not sizes or max(sizes) - min(sizes) <= 1


def all_plans(n: int) -> Iterator[tuple[Segment, ...]]:
    """Every way to cut n blocks into kept ones and recomputed runs."""
    for cuts in itertools.product([False, True], repeat=max(0, n - 1)):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [n]
        runs = [range(a, b) for a, b in itertools.pairwise([0, *ends])]
        choices = [[True, False] if len(run) == 1 else [True] for run in runs]
        for flags in itertools.product(*choices):
            yield tuple(Segment(run, flag) for run, flag in zip(runs, flags, strict=True))


def played(plan: tuple[Segment, ...], memories: list[int], inputs: list[int]) -> int:
    """The peak, found by holding and freeing block after block instead of by a formula."""
    held: dict[object, int] = {}
    peak = 0
    for segment in plan:
        for i in segment.blocks:
            if not segment.recomputed:
                held[i] = memories[i]
            elif i == segment.blocks.start:
                held["input", i] = inputs[i]
        peak = max(peak, sum(held.values()))
    for segment in reversed(plan):
        held.update({i: memories[i] for i in segment.blocks})
        peak = max(peak, sum(held.values()))
        for i in reversed(segment.blocks):
            del held[i]
        held.pop(("input", segment.blocks.start), None)
    assert not held
    return peak


@pytest.mark.parametrize("seed", range(12))
def test_equal_to_the_best_of_all_plans(seed: int) -> None:
    draw = random.Random(seed)
    n = draw.randint(1, 7)
    costs = [draw.randint(1, 9) for _ in range(n)]
    memories = [draw.randint(1, 20) for _ in range(n)]
    inputs = [draw.randint(0, 4) for _ in range(n)]
    plans = {plan: played(plan, memories, inputs) for plan in all_plans(n)}
    assert all(peak_memory(plan, memories, inputs) == peak for plan, peak in plans.items())
    for budget in range(min(plans.values()), sum(memories) + 2):
        extra = min(
            sum(costs[i] for s in plan if s.recomputed for i in s.blocks)
            for plan, peak in plans.items()
            if peak <= budget
        )
        found = best_segments(costs, memories, budget, inputs)
        assert found.extra == extra
        assert found.peak == plans[found.segments] <= budget
    with pytest.raises(Refusal, match=f"{n} blocks within {min(plans.values()) - 1}"):
        best_segments(costs, memories, min(plans.values()) - 1, inputs)


def test_many_equal_blocks_are_planned() -> None:
    n, memory = 48, 20
    whole = best_segments([1] * n, [memory] * n, n * memory, [1] * n)
    assert whole.extra == 0
    leanest = best_segments([1] * n, [memory] * n, n + memory, [1] * n)
    assert n - 2 <= leanest.extra <= n
    assert leanest.peak <= n + memory
    half = best_segments([1] * n, [memory] * n, n * memory // 2, [1] * n)
    assert 0 < half.extra <= n // 2 + 4
    assert half.peak <= n * memory // 2


def test_a_plan_holds_what_it_says() -> None:
    unit = 1000 * 4

    def block(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(x)  # saves its result: three units a block
        return x

    def run(blocks: range, x: torch.Tensor) -> torch.Tensor:
        for _ in blocks:
            x = block(x)
        return x

    n = 6
    for budget in (10, 11, 13, 15, 18):
        plan = best_segments([1] * n, [3] * n, budget, [1] * n)
        x = torch.ones(1000, requires_grad=True)
        with LiveMemory() as memory:
            y = x
            for segment in plan.segments:
                y = checkpoint(run, segment.blocks, y) if segment.recomputed else block(y)
            y.backward(torch.ones_like(y))
        # Beside the plan: the last output, and the gradients on their way, two and a factor.
        assert plan.peak <= budget
        assert memory.peak <= (plan.peak + 5) * unit


@pytest.mark.parametrize(("costs", "inputs"), [([1.0], None), ([1.0] * 3, None), ([1.0] * 2, [0])])
def test_costs_memories_and_inputs_are_of_the_same_blocks(costs: Any, inputs: Any) -> None:
    with pytest.raises(Refusal, match="each block has one of each"):
        best_segments(costs, [5, 5], 100, inputs)
