"""Choose a layout: of all that fit, the one with the lowest product of bytes, memory and waiting.

Notebook 16. You get a model, a number of ranks, the number of ranks per node, a batch, and a limit
of memory. Find the layout with the lowest score. `price`, below, computes what a rank sends and
holds and how long it waits, with the formulas of the lessons, and the score is the product of the
three. They pull in different directions, so no rule of thumb finds the best layout. But a computer
can price thousands of layouts in a second, if you only generate those that fit.

A layout fits if
- `pp · dp · ep · tp` is the number of ranks;
- pp divides the layers; tp divides heads, key-value heads, inner channels and vocabulary; ep
  divides the number of experts, and is 1 without experts;
- the batch divides evenly among dp · ep ranks, and each rank's share into micro-batches;
- `zero` is 1 or 3;
- its peak is at most the budget.

A score within 5 % of the lowest is enough, though you can find the lowest itself. There may be many
ranks: with 27720 of them you have two seconds of processor time, too little to try all numbers, or
all divisors, on each axis. Which values can pp have at all, and what is left for dp when the other
three are known?

Nothing is sent, and you may use all of Python.

Your answer may use `model.ModelConfig` of `course_lib`.
"""

import math
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig

CALL = 1 << 20  # beginning a transfer takes as long as sending this many bytes


class Layout(NamedTuple):
    """The layout to choose; the mesh is pp × dp × ep × tp, and ranks along tp are neighbours."""

    pp: int
    dp: int
    ep: int
    tp: int
    micro_batches: int
    zero: int  # 1 cuts the optimizer's state over the replicas, 3 parameters and gradients too


class Price(NamedTuple):
    """What a layout costs.

    Attributes:
        wire: bytes that a rank sends in a step, and `CALL` for each call; inside a node both count
            a sixteenth.
        peak: bytes that it holds.
        bubble: the fraction of the step's time in which it waits for its pipeline.
    """

    wire: float
    peak: float
    bubble: float

    @property
    def score(self) -> float:
        """The score of the layout; lower is better."""
        return (1 + self.wire) * self.peak * (1 + self.bubble)


def price(config: ModelConfig, layout: Layout, ranks_per_node: int, batch: int) -> Price:
    """Given: prices a layout of which all sizes divide, on a rank of the first stage.

    Args:
        config: the model, in bfloat16, with fp32 gradients and 12 bytes of state a parameter.
        layout: how it is divided.
        ranks_per_node: an axis is inside the nodes if its size times the sizes of all axes to the
            right of it divides this.
        batch: sequences in a step, all ranks together.
    """
    pp, dp, ep, tp, m, zero = layout
    experts, top_k = (config.moe.experts, config.moe.top_k) if config.moe else (0, 0)
    own, width = config.layers // pp, config.hidden
    tokens = batch // (dp * ep * m) * config.sequence  # of a micro-batch

    # What a rank has: the embedding and its blocks, and of the experts its own.
    network = (3 if config.gated else 2) * width * config.ffn / tp
    attention = 2 * width * config.head_width * (config.heads + config.kv_heads) / tp
    dense = own * (attention + (0 if experts else network)) + config.vocabulary * width / tp
    mine = own * experts * network / ep
    cut = dense / (dp * ep) + mine / dp  # a replica's part of it
    state = 6 * (dense + mine) + 12 * cut
    if zero == 3:
        state = 18 * cut + 2 * (dense + mine) / own  # and a block that is gathered
    kept = min(m, pp) * own * tokens * (10 + 24 / tp) * width
    logits = 4 * tokens * config.vocabulary / tp

    # What it sends: calls, the bytes of each, and how many ranks lie next to each other.
    row = tokens * width * 2
    sent = [
        ((tp > 1) * 4 * own * m, row * 2 * (tp - 1) / tp, tp),
        ((ep > 1) * 4 * own * m, row * top_k * (ep - 1) / ep, tp * ep),
        ((dp * ep > 1) * (2 * m + 1 if zero == 3 else 2), 2 * (dense + mine - cut), tp * ep * dp),
        ((pp > 1) * 2 * m, row, tp * ep * dp * pp),
    ]
    wire = sum(
        calls * (CALL + size) / (1 if ranks_per_node % span else 16) for calls, size, span in sent
    )
    return Price(wire, state + kept + logits, (pp - 1) / (m + pp - 1))


def choose_layout(
    config: ModelConfig, world: int, ranks_per_node: int, batch: int, budget: float
) -> Layout | None:
    """Returns the best layout.

    Args:
        config: the model.
        world: number of ranks.
        ranks_per_node: how many of them share a node; the world is a multiple of it, or smaller.
        batch: sequences in a step.
        budget: bytes that a rank may hold.

    Returns:
        The layout with the lowest score of those that fit; None if none fits.
    """

    raise NotImplementedError("choose_layout: write your answer here")
