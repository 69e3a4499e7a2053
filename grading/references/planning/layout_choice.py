"""What a layout costs, which layouts there are, and from which shortcut a wrong choice comes.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3, for the trade; Korthikanti et al. (2022),
section 4.1, for the activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from course_lib.model import ModelConfig, MoEConfig

CALL = 1 << 20  # to begin a transfer takes as long as so many bytes


class Layout(NamedTuple):
    """What is chosen."""

    pp: int
    dp: int
    ep: int
    tp: int
    micro_batches: int
    zero: int


class Price(NamedTuple):
    """What it costs."""

    wire: float
    peak: float
    bubble: float

    @property
    def score(self) -> float:
        """The lower the better."""
        return (1 + self.wire) * self.peak * (1 + self.bubble)


class Case(NamedTuple):
    """A question."""

    shape: dict[str, Any]
    moe: list[int]
    world: int
    ranks_per_node: int
    batch: int
    budget: float

    @property
    def config(self) -> ModelConfig:
        """The model."""
        mixture = MoEConfig(experts=self.moe[0], top_k=self.moe[1]) if self.moe else None
        return ModelConfig(**self.shape, moe=mixture)

    @property
    def words(self) -> str:
        """It, for messages."""
        s = self.shape
        mixture = "{} experts, top {}".format(*self.moe) if self.moe else "no experts"
        return (
            f"{self.world} ranks, {self.ranks_per_node} a node; {s['layers']} layers, "
            f"{s['heads']}/{s['kv_heads']} heads, {mixture}; batch {self.batch}"
        )


def price(config: ModelConfig, layout: Layout, ranks_per_node: int, batch: int) -> Price:
    """What a rank of the first stage sends and holds, and how long it waits."""
    pp, dp, ep, tp, m, zero = layout
    experts, top_k = (config.moe.experts, config.moe.top_k) if config.moe else (0, 0)
    own, width = config.layers // pp, config.hidden
    tokens = batch // (dp * ep * m) * config.sequence
    network = (3 if config.gated else 2) * width * config.ffn / tp
    attention = 2 * width * config.head_width * (config.heads + config.kv_heads) / tp
    dense = own * (attention + (0 if experts else network)) + config.vocabulary * width / tp
    mine = own * experts * network / ep
    cut = dense / (dp * ep) + mine / dp
    state = 6 * (dense + mine) + 12 * cut
    if zero == 3:
        state = 18 * cut + 2 * (dense + mine) / own
    kept = min(m, pp) * own * tokens * (10 + 24 / tp) * width
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
    peak = state + kept + 4 * tokens * config.vocabulary / tp
    return Price(wire, peak, (pp - 1) / (m + pp - 1))


def misfit(case: Case, layout: Any) -> str:
    """Why a layout cannot be, the budget aside; empty if it can."""
    if not isinstance(layout, list) or len(layout) != 6:
        return "return a Layout of six integers, or None if none fits"
    pp, dp, ep, tp, m, zero = layout
    config = case.config
    if min(layout) < 1 or pp * dp * ep * tp != case.world:
        return "pp · dp · ep · tp is the number of ranks"
    if config.layers % pp:
        return "pp divides the layers"
    if any(n % tp for n in (config.heads, config.kv_heads, config.ffn, config.vocabulary)):
        return "tp divides heads, key-value heads, inner channels and vocabulary"
    if (config.moe.experts if config.moe else 1) % ep:
        return "ep divides the number of experts, and is 1 without experts"
    if case.batch % (dp * ep * m):
        return "the batch is cut over dp · ep ranks, and there into equal micro-batches"
    return "" if zero in (1, 3) else "`zero` is 1 or 3"


def candidates(case: Case) -> Iterator[tuple[Layout, Price]]:
    """All layouts that can be, with their prices; the budget aside."""
    config = case.config
    widths = math.gcd(config.heads, config.kv_heads, config.ffn, config.vocabulary)
    pps, tps, eps = (
        _divisors(math.gcd(n, case.world))
        for n in (config.layers, widths, case.moe[0] if case.moe else 1)
    )
    for pp, tp, ep in product(pps, tps, eps):
        dp = case.world // (pp * tp * ep)
        if case.world % (pp * tp * ep) or case.batch % (dp * ep):
            continue
        for m, zero in product(_divisors(case.batch // (dp * ep)), (1, 3)):
            layout = Layout(pp, dp, ep, tp, m, zero)
            yield layout, price(config, layout, case.ranks_per_node, case.batch)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


SHORTCUTS: dict[str, Callable[[Layout, Price], float]] = {  # what else may have been least
    "this has the fewest bytes: memory and waiting count too": lambda _, p: p.wire,
    "this holds least: bytes and waiting count too": lambda _, p: p.peak,
    "the bubble was left out of the score": lambda _, p: (1 + p.wire) * p.peak,
    "the peak was left out of the score: below the budget it still counts":
        lambda _, p: (1 + p.wire) * (1 + p.bubble),
    "the bytes were left out of the score": lambda _, p: p.peak * (1 + p.bubble),
    "this has the highest score, not the lowest": lambda _, p: -p.score,
}  # fmt: skip
HABITS: dict[str, Callable[[Case, Layout], bool]] = {  # what may not have been tried
    "only zero 1 was tried": lambda _, c: c.zero == 1,
    "only zero 3 was tried": lambda _, c: c.zero == 3,
    "only one micro-batch was tried": lambda _, c: c.micro_batches == 1,
    "only as many micro-batches as can be were tried": lambda case, c: (
        c.micro_batches * c.dp * c.ep == case.batch
    ),
    "only layouts with at least one micro-batch for each stage were tried": lambda _, c: (
        c.micro_batches >= c.pp
    ),
    "tp only inside a node was tried": lambda case, c: case.ranks_per_node % c.tp == 0,
    "only layouts without a pipeline were tried": lambda _, c: c.pp == 1,
    "only layouts without tensor parallelism were tried": lambda _, c: c.tp == 1,
    "only layouts without expert parallelism were tried": lambda _, c: c.ep == 1,
}


class Search:
    """All that can be, what is best, and what a search finds that leaves something out."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.all = list(candidates(case))
        self.fit = [(c, p) for c, p in self.all if p.peak <= case.budget]

    @property
    def best(self) -> tuple[Layout, Price]:
        """The lowest score within the budget."""
        return min(self.fit, key=lambda pair: pair[1].score)

    def cause(self, layout: Layout) -> str:
        """All shortcuts that would have led to a layout within the budget."""
        found = price(self.case.config, layout, self.case.ranks_per_node, self.case.batch)
        fits = []
        for why, tried in HABITS.items():
            scores = [p.score for c, p in self.fit if tried(self.case, c)]
            if tried(self.case, layout) and found.score == min(scores):
                fits.append(why)
        for why, key in SHORTCUTS.items():
            if key(layout, found) == min(key(c, p) for c, p in self.fit):
                fits.append(why)
        return "; or ".join(fits)

    def cause_of_none(self) -> str:
        """All that would not have found any layout."""
        found = {why for why, tried in HABITS.items() for c, _ in self.fit if tried(self.case, c)}
        return "; or ".join(why for why in HABITS if why not in found)
