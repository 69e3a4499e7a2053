"""mutant: this is no cut, at least one block on each stage"""

from collections.abc import Sequence
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
    blocks = [list(block) for block in costs.blocks]
    for place, end in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
        blocks[place] = [a + b for a, b in zip(blocks[place], end, strict=True)]
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by blocks placed: largest stage, cut
    for stage in range(stages):
        found: dict[int, tuple[int, list[int]]] = {}
        flying = min(stages - stage, micro_batches)
        for start, (before, cut) in best.items():
            size = 0
            for end in range(start, len(blocks) + 1):
                if end > start:
                    size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
                largest = max(before, size)
                if end not in found or largest < found[end][0]:
                    found[end] = largest, [*cut, end - start]
        best = found
    return best[len(blocks)][1]
