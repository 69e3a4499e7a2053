"""Seconds of a step by the rules of step_time, and what comes out if one of them is forgotten.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Thakur et al. (2005), section 4, for the
ring; Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Cluster

Rules = Mapping[str, Any]
PARTS = ("compute", "tp", "pp", "bubble", "dp")

# Known wrong rules, each under the sentence that explains it.
COMPUTING: Mapping[str, Rules] = {
    "a backward has twice the FLOPs of a forward: these are forward only": {"back": 0},
    "a backward has twice the FLOPs of a forward": {"back": 1},
    "`full` computes every block's forward once more": {"again": False},
    "only `full` computes forwards again": {"again": True},
    "the FLOPs inside attention are missing": {"attention": 0},
    "the causal mask leaves half of attention": {"attention": 4},
    "a pass cannot be faster than its bytes move: the roofline": {"moved": (0, 0)},
    "a backward moves 12 bytes a weight": {"moved": (2, 4)},
    "tp cuts what is computed": {"tp": 1},
    "products reach `efficiency` of the peak": {"efficiency": 1.0},
    "a stage has L/pp of the blocks": {"stages": 1},
}
SENDING: Mapping[str, Rules] = {
    "every message takes α as well": {"alpha": 0},
    "an all-reduce has 2(N-1) messages, not N-1": {"trips": 1},
    "messages of S/N bytes each": {"whole": True},
    "inside a node it is the link `inside`, not the network": {"link": "between"},
    "across nodes it is the network, not the link `inside`": {"link": "inside"},
    "each rank that a node has of the group brings an adapter": {"adapters": 1},
    "inside a node it is the link `inside`, and one adapter is no node":
        {"link": "between", "adapters": 1},
    "no faster than the link inside": {"capped": False},
}  # fmt: skip


def ring(size: float, ranks: int, stride: int, cluster: Cluster, **rules: Any) -> float:
    """Seconds of an all-reduce; a rule is changed by naming it.

    Args:
        size: bytes.
        ranks: of the group.
        stride: how far apart they lie.
        cluster: nodes and links.
        **rules: `trips` round the ring, `alpha` as a factor, `whole` messages not cut by N,
            `link` to use in any case, `adapters` of a node, `capped` by the link inside.
    """
    near, far = cluster.inside, cluster.between
    adapters = rules.get("adapters") or max(1, cluster.node // stride)
    beta = adapters * far.bandwidth
    crossing = beta if not rules.get("capped", True) else min(near.bandwidth, beta)
    inside = {"inside": True, "between": False}.get(
        rules.get("link", ""), stride * ranks <= cluster.node
    )
    alpha, speed = (near.alpha, near.bandwidth) if inside else (far.alpha, crossing)
    each = alpha * rules.get("alpha", 1) + size / (1 if rules.get("whole") else ranks) / speed
    return float(rules.get("trips", 2) * (ranks - 1) * each)


class Priced:
    """A step's terms for one layout.

    Args:
        config: the model.
        layout: how it is spread.
        cluster: where.
        efficiency: part of the peak that products reach.
        rules: those that are changed.
    """

    def __init__(
        self, config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float, rules: Rules
    ) -> None:
        self.config, self.layout, self.cluster = config, layout, cluster
        self.rate = cluster.gpu.peak[layout.precision] * rules.get("efficiency", efficiency)
        self.rules = dict(rules)
        self.tp = rules.get("tp", layout.tp)
        self.m = rules.get("m", layout.micro_batches)
        self.own = config.layers // rules.get("stages", layout.pp)
        self.tokens = layout.micro_batch_size * config.sequence
        self.again: float = rules.get("again", layout.recompute == "full")

    def passes(self, flops: float, weights: float) -> tuple[float, float]:
        """Seconds forward and backward, by the roofline."""
        moved = self.rules.get("moved", (2, 12))
        one, two = (n * weights / self.cluster.gpu.bandwidth for n in moved)
        back = self.rules.get("back", 2)
        return max(flops / self.rate, one), max(back * flops / self.rate, two) if back else 0.0

    def sizes(self) -> tuple[float, float]:
        """A rank's weights in a block, and in a table."""
        c = self.config
        width = c.hidden // c.heads * c.kv_heads
        block = 2 * c.hidden * (c.hidden + width) + (3 if c.gated else 2) * c.hidden * c.ffn
        return block / self.tp, c.vocabulary * c.hidden / self.tp

    def block(self) -> tuple[float, float]:
        """Seconds of a block forward and backward."""
        weights, _ = self.sizes()
        inside = self.rules.get("attention", 2) * self.tokens * self.config.sequence
        flops = 2 * self.tokens * weights + inside * self.config.hidden / self.tp
        return self.passes(flops, weights)

    def head(self) -> float:
        """Seconds of the output layer for a micro-batch."""
        _, table = self.sizes()
        forward, backward = self.passes(2 * self.tokens * table, table)
        times = self.rules.get("head", 1)
        return float(times * (forward * (1 + self.rules.get("head_again", 0)) + backward))

    def slot(self) -> dict[str, float]:
        """What a micro-batch needs on a stage without the output layer."""
        forward, backward = self.block()
        sums: float = self.rules.get("sums", 4) + 2 * self.rules.get("sums_again", self.again)
        size = 2 * self.tokens * self.config.hidden
        near = self.layout.gpus <= self.cluster.node
        link = (
            self.cluster.inside
            if near != self.rules.get("other", False)
            else (self.cluster.between)
        )
        each = link.alpha * self.rules.get("alpha", 1) + (
            size / self.rules.get("pieces", self.layout.tp) / link.bandwidth
        )
        one = ring(size, self.layout.tp, 1, self.cluster, **self.rules)
        return {
            "compute": self.own * (forward * (1 + self.again) + backward),
            "tp": self.own * sums * one,
            "pp": (self.layout.pp > 1) * self.rules.get("messages", 2) * each,
        }

    def replicas(self) -> float:
        """Exposed seconds of the gradients' sum."""
        weights, table = self.sizes()
        one = self.layout.pp > 1 or self.config.tied
        tables = self.rules.get("tables", 1 if one else 2)
        size = self.rules.get("bytes", 2) * (self.own * weights + tables * table)
        stride = self.rules.get("apart", self.layout.tp)
        whole = ring(size, self.layout.dp, stride, self.cluster, **self.rules)
        window = self.own * self.block()[1] * self.rules.get("window", 1)
        return max(0.0, self.rules.get("times", 1) * whole - window)

    def part(self, name: str) -> float:
        """One term."""
        slot = self.slot()
        if name == "dp":
            return self.replicas()
        if name == "bubble":
            parts = self.rules.get("parts", ("compute", "tp", "pp"))
            one = sum(slot[part] for part in parts) + self.rules.get("with_head", 0) * self.head()
            return float(self.rules.get("idle", self.layout.pp - 1) * one)
        return float(self.m * (slot[name] + (self.head() if name == "compute" else 0.0)))


def causes(name: str, layout: Layout) -> dict[str, Rules]:
    """Known wrong rules for a term."""
    m, pp = layout.micro_batches, layout.pp
    half: Rules = {"sums": 2, "sums_again": (layout.recompute == "full") / 2}
    once: dict[str, Rules] = {"of all micro-batches, not of one": {"m": 1}}
    table: dict[str, dict[str, Rules]] = {
        "compute": {
            "the last stage has the output layer": {"head": 0},
            "the last stage has all of the output layer": {"head": 1 / pp},
            "the output layer is not computed again": {"head_again": 1},
            **once, **COMPUTING,
        },
        "tp": {
            "two sums forward and two backward, each of 2(N-1) messages": half,
            "`full` makes the forward's two sums again": {"sums_again": False},
            "a forward that is not computed again sums nothing again": {"sums_again": True},
            "a stage has L/pp of the blocks": {"stages": 1},
            **once, **SENDING,
        },
        "pp": {
            **once,
            "one message comes and one goes": {"messages": 1},
            "each rank of tp sends its part": {"pieces": 1},
            "every message takes α as well": {"alpha": 0},
            "over the network if the GPUs are more than a node": {"other": True},
        },
        "bubble": {
            "the bubble is missing": {"idle": 0},
            "pp - 1 times, not pp": {"idle": pp},
            "it is idle in all, not for each micro-batch": {"idle": (pp - 1) * m},
            "this is a part of the step: seconds are asked for": {"idle": (pp - 1) / (m + pp - 1)},
            "a stage without the output layer sets it": {"with_head": 1},
            "sums over tp make it longer": {"parts": ("compute", "pp")},
            "messages make it longer": {"parts": ("compute", "tp")},
            "sums and messages make it longer": {"parts": ("compute",)},
            **COMPUTING, **SENDING,
        },
        "dp": {
            "once a step, not for each micro-batch": {"times": m},
            "the last backward of the blocks hides it": {"window": 0},
            "only one micro-batch's backward hides it": {"window": m},
            "tp has cut the gradients": {"bytes": 2 * layout.tp},
            "a stage at an end has one table, a lone one two unless tied": {"tables": 2},
            "tables have gradients, too": {"tables": 0},
            "a lone stage has both tables, if they are not tied": {"tables": 1},
            "2 bytes a gradient": {"bytes": 4},
            "its ranks lie tp apart": {"apart": 1},
            **COMPUTING, **SENDING,
        },
    }  # fmt: skip
    return table[name]


def answer(
    name: str, config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> tuple[float, dict[str, float]]:
    """The right seconds of a term, and known wrong ones."""

    def priced(rules: Rules) -> float:
        return Priced(config, layout, cluster, efficiency, rules).part(name)

    return priced({}), {why: priced(rules) for why, rules in causes(name, layout).items()}
