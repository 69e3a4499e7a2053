"""One rank is full while another is half empty: cut the pipeline by bytes, not by layers.

Notebook 14. The fullest rank of a pipeline of p stages decides whether it fits: if one rank runs
out of memory, nothing runs, however much room the others have. Equal numbers of blocks do not give
equal ranks:

- The first stage has the embedding as well and the last the head, each the size of several blocks.
- Under 1F1B (lesson 08), stage s, counted from 0, has begun up to p - s micro-batches whose
  backward is still to come, and keeps the activations of each; of m micro-batches never more than
  m. So the first stage holds p times what the last one does.

A stage's bytes, with mixed precision and Adam, are

    16 · parameters + activations · min(p - s, m)

where `parameters` is a number and `activations` are the bytes that one micro-batch keeps until its
backward. Both are sums over what the stage holds: its blocks, the embedding on the first stage, and
the head on the last. If there is only one stage, it has both.

Rules
- A cut gives the number of blocks of each stage, in order; the blocks of a stage are neighbours,
  and each stage has at least one.
- `balance` returns a cut whose largest stage is as small as it can be; if there are several such
  cuts, any of them will do. There may be sixteen stages and a hundred blocks, too many to try all
  cuts: the best cut of the first blocks into k + 1 stages is made of a best cut of fewer blocks
  into k stages.
- Use plain Python and whole numbers of bytes; nothing is sent.
"""

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
    # BEGIN SOLUTION: bytes on each stage
    sizes, start = [], 0
    for stage, count in enumerate(cut):
        layers = list(costs.blocks[start : start + count])
        layers += [costs.embedding] if stage == 0 else []
        layers += [costs.head] if stage == len(cut) - 1 else []
        flying = min(len(cut) - stage, micro_batches)
        sizes.append(sum(16 * one.parameters + one.activations * flying for one in layers))
        start += count
    return sizes
    # END SOLUTION


def imbalance(sizes: Sequence[int]) -> float:
    """The largest stage as a multiple of the mean: 1.0 is even, 1.5 needs half as much again."""
    # BEGIN SOLUTION: the report
    return max(sizes) * len(sizes) / sum(sizes)
    # END SOLUTION


def balance(costs: Costs, stages: int, micro_batches: int) -> list[int]:
    """The cut whose largest stage is smallest.

    Args:
        costs: the model, with at least as many blocks as stages.
        stages: p.
        micro_batches: m, of one step.
    """
    # BEGIN SOLUTION: the best cut
    blocks = [list(block) for block in costs.blocks]
    for place, own in ((0, costs.embedding), (-1, costs.head)):  # they go where this block goes
        blocks[place] = [a + b for a, b in zip(blocks[place], own, strict=True)]
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # by blocks placed: largest stage, cut
    for stage in range(stages):
        found: dict[int, tuple[int, list[int]]] = {}
        flying = min(stages - stage, micro_batches)
        for start, (before, cut) in best.items():
            size = 0
            for end in range(start + 1, len(blocks) + 1):
                size += 16 * blocks[end - 1][0] + blocks[end - 1][1] * flying
                largest = max(before, size)
                if end not in found or largest < found[end][0]:
                    found[end] = largest, [*cut, end - start]
        best = found
    return best[len(blocks)][1]
    # END SOLUTION
