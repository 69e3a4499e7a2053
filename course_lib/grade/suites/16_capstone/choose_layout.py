"""Checks of choose_layout: it fits, and its score is within 5 % of the best of all that fit.

Notebook: 16 Capstone (choose_layout).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3, for the trade; Korthikanti et al. (2022),
section 4.1, for the activations.
Costs: two runs of one process, and in the process that judges a search of its own.
The production version (Galvatron, Alpa) searches block by block, with measured times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from course_lib.grade.checks import Exercise, check
from course_lib.model import ModelConfig, MoEConfig

EXERCISE = Exercise(
    name="choose_layout",
    lesson="16_capstone",
    title="Choose a layout",
    core=False,
    minutes=30,
    order=40,
    hints=(
        "Write it as a search: all layouts that fit, the price of each, the lowest score of those "
        "within the budget. Leave nothing out because it looks bad: the score decides.",
        "pp is a divisor of the layers, tp one of the greatest common divisor of everything that "
        "it cuts, ep one of the experts. dp is what is left of the ranks, if that divides. Then "
        "micro-batches are a divisor of batch // (dp · ep).",
        "`for pp, tp, ep in product(divisors(layers), divisors(gcd(...)), divisors(experts))`, "
        "`dp, rest = divmod(world, pp * tp * ep)`, skip if rest or not dp or batch % (dp * ep); "
        "inside, loop over micro-batches and zero in (1, 3), and keep the lowest score.",
    ),
)

MARGIN = 1.05  # how far from the best a score may be
INFINITE = math.inf


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
        return (f"{self.world} ranks, {self.ranks_per_node} a node; {s['layers']} layers, "
                f"{s['heads']}/{s['kv_heads']} heads, {mixture}; batch {self.batch}")  # fmt: skip


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> list[Any]:
    """The layout of each case, as a list of numbers; None where none was found."""
    found = []
    for given in cases:
        case = Case(**given)
        layout = learner.choose_layout(
            case.config, case.world, case.ranks_per_node, case.batch, case.budget
        )
        plain = isinstance(layout, (tuple, list)) and all(isinstance(n, int) for n in layout)
        found.append([int(n) for n in layout] if plain else layout and repr(layout))
    return found


# --- by the rules --------------------------------------------------------------------------------
def price(case: Case, layout: Layout) -> Price:
    """What a rank of the first stage sends and holds, and how long it waits."""
    config, (pp, dp, ep, tp, m, zero) = case.config, layout
    experts, top_k = case.moe or (0, 0)
    own, width = config.layers // pp, config.hidden
    tokens = case.batch // (dp * ep * m) * config.sequence
    network = (3 if config.gated else 2) * width * config.ffn / tp
    attention = 2 * width * config.head_width * (config.heads + config.kv_heads) / tp
    dense = own * (attention + (0 if experts else network)) + config.vocabulary * width / tp
    mine = own * experts * network / ep
    cut = dense / (dp * ep) + mine / dp
    state = 6 * (dense + mine) + 12 * cut
    if zero == 3:
        state = 18 * cut + 2 * (dense + mine) / own
    peak = state + min(m, pp) * own * tokens * (10 + 24 / tp) * width
    row = m * tokens * width * 2
    sent = {
        tp: row * own * 4 * 2 * (tp - 1) / tp,
        tp * ep: row * own * 4 * top_k * (ep - 1) / ep,
        tp * ep * dp: (2 * m + 1 if zero == 3 else 2) * 2 * (dense + mine - cut),
        case.world: row * 2 * (pp > 1),
    }
    del sent
    return Price(0.0, peak, 0.0)
