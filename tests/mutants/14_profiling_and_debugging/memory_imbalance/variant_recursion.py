"""variant: remembers the best cut of the last blocks"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple


class Layer(NamedTuple):
    """What a layer needs.

    Attributes:
        parameters: how many.
        activations: bytes kept for each micro-batch in flight.
    """

    parameters: int
    activations: int


class Costs(NamedTuple):
    """A model, from the tokens to the logits.

    Attributes:
        embedding: always on the first stage.
        blocks: in order; they may differ.
        head: always on the last stage.
    """

    embedding: Layer
    blocks: Sequence[Layer]
    head: Layer


def stage_bytes(costs: Costs, cut: Sequence[int], micro_batches: int) -> list[int]:
    """Bytes on each stage.

    Args:
        costs: the model.
        cut: the number of blocks of each stage.
        micro_batches: m, of one step.
    """
    sizes, start = [], 0
    for stage, count in enumerate(cut):
        layers = list(costs.blocks[start : start + count])
        layers += [costs.embedding] if stage == 0 else []
        layers += [costs.head] if stage == len(cut) - 1 else []
        flying = min(len(cut) - stage, micro_batches)
        sizes.append(sum(16 * one.parameters + one.activations * flying for one in layers))
        start += count
    return sizes


def imbalance(sizes: Sequence[int]) -> float:
    """The largest stage as a multiple of the mean: 1.0 is even, 1.5 needs half as much again."""
    return max(sizes) * len(sizes) / sum(sizes)


def balance(costs: Costs, stages: int, micro_batches: int) -> list[int]:
    """The cut whose largest stage is smallest.

    Args:
        costs: the model, with at least as many blocks as stages.
        stages: p.
        micro_batches: m, of one step.
    """
    n = len(costs.blocks)

    @cache
    def rest(stage, start):
        flying = min(stages - stage, micro_batches)
        size = 16 * costs.embedding.parameters + costs.embedding.activations * flying
        size *= stage == 0
        if stage == stages - 1:
            layers = [*costs.blocks[start:], costs.head]
            return size + sum(16 * p + a * flying for p, a in layers), (n - start,)
        options = []
        for end in range(start + 1, n - (stages - stage - 1) + 1):
            size += 16 * costs.blocks[end - 1].parameters
            size += costs.blocks[end - 1].activations * flying
            worst, cut = rest(stage + 1, end)
            options.append((max(size, worst), (end - start, *cut)))
        return min(options)

    return list(rest(0, 0)[1])
