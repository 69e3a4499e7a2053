"""mutant: balance: seventy blocks on sixteen stages, balance: the best of all cuts"""

from collections.abc import Sequence
from itertools import combinations
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
    cuts = []
    for inner in combinations(range(1, n), stages - 1):
        bounds = [0, *inner, n]
        cuts.append([b - a for a, b in zip(bounds, bounds[1:])])
    return min(cuts, key=lambda cut: max(stage_bytes(costs, cut, micro_batches)))
