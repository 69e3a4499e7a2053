"""Wrong and right answers to `choose_layout`: see `course dev show choose_layout`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_numbers", ["dp follows from these three"], '''
-    for pp, tp, ep in product(divisors(config.layers), divisors(widths), divisors(experts)):
-        dp, rest = divmod(world, pp * tp * ep)
-        if rest or not dp or batch % (dp * ep):
+    every = divisors(world)
+    for pp, dp, ep, tp in product(every, every, every, every):
+        if pp * dp * ep * tp != world or batch % (dp * ep):
+            continue
+        if config.layers % pp or widths % tp or experts % ep:
'''),
    Wrong("always_an_answer", ["a layout was returned where none is within the budget"], '''
-    best, lowest = None, math.inf
+    best, lowest, smallest = None, math.inf, (math.inf, None)
@@
             found = price(config, layout, ranks_per_node, batch)
+            smallest = min(smallest, (found.peak, layout))
@@
-    return best
+    return best or smallest[1]
'''),
    Wrong("fewest_bytes", ["this has the fewest bytes"], '''
-            if found.peak <= budget and found.score < lowest:
-                best, lowest = layout, found.score
+            if found.peak <= budget and found.wire < lowest:
+                best, lowest = layout, found.wire
'''),
    Wrong("ffn_forgotten", ["inner channels and vocabulary"], '''
-    widths = math.gcd(config.heads, config.kv_heads, config.ffn, config.vocabulary, world)
+    widths = math.gcd(config.heads, config.kv_heads, config.vocabulary, world)
'''),
    Wrong("first_that_fits", ["a different layout is better"], '''
-                best, lowest = layout, found.score
+                return layout
'''),
    Wrong("ignores_the_budget", ["check the budget"], '''
-            if found.peak <= budget and found.score < lowest:
+            if found.score < lowest:
'''),
    Wrong("kv_heads_forgotten", ["tp divides heads", "key-value heads"], '''
-    widths = math.gcd(config.heads, config.kv_heads, config.ffn, config.vocabulary, world)
+    widths = math.gcd(config.heads, config.ffn, config.vocabulary, world)
'''),
    Wrong("least_memory", ["this holds least"], '''
-            if found.peak <= budget and found.score < lowest:
-                best, lowest = layout, found.score
+            if found.peak <= budget and found.peak < lowest:
+                best, lowest = layout, found.peak
'''),
    Wrong("most_micro_batches", ["only as many micro-batches as can be were tried"], '''
-        for micro_batches, zero in product(divisors(batch // (dp * ep)), (1, 3)):
+        for micro_batches, zero in product([batch // (dp * ep)], (1, 3)):
'''),
    Wrong("micro_batches_fill_the_pipeline", ["at least one micro-batch for each stage"], '''
+            if micro_batches < pp:
+                continue
             layout = Layout(pp, dp, ep, tp, micro_batches, zero)
'''),
    Wrong("never_zero_3", ["only zero 1 was tried"], '''
-        for micro_batches, zero in product(divisors(batch // (dp * ep)), (1, 3)):
+        for micro_batches, zero in product(divisors(batch // (dp * ep)), (1,)):
'''),
    Wrong("no_pipeline", ["only layouts without a pipeline were tried"], '''
-    for pp, tp, ep in product(divisors(config.layers), divisors(widths), divisors(experts)):
+    for pp, tp, ep in product([1], divisors(widths), divisors(experts)):
'''),
    Wrong("one_micro_batch", ["only one micro-batch was tried"], '''
-        for micro_batches, zero in product(divisors(batch // (dp * ep)), (1, 3)):
+        for micro_batches, zero in product([1], (1, 3)):
'''),
    Wrong("rows_over_dp_alone", ["the batch is cut over dp · ep ranks"], '''
-        if rest or not dp or batch % (dp * ep):
+        if rest or not dp or batch % dp:
'''),
    Wrong("rows_left_over", ["there into equal micro-batches"], '''
-        for micro_batches, zero in product(divisors(batch // (dp * ep)), (1, 3)):
+        for micro_batches, zero in product(range(1, batch // (dp * ep) + 1), (1, 3)):
'''),
    Wrong("strictly_below", ["<=", "not <"], '''
-            if found.peak <= budget and found.score < lowest:
+            if found.peak < budget and found.score < lowest:
'''),
    Wrong("tp_inside_a_node", ["tp only inside a node"], '''
-        if rest or not dp or batch % (dp * ep):
+        if rest or not dp or batch % (dp * ep) or ranks_per_node % tp:
'''),
    Wrong("vocabulary_forgotten", ["inner channels and vocabulary"], '''
-    widths = math.gcd(config.heads, config.kv_heads, config.ffn, config.vocabulary, world)
+    widths = math.gcd(config.heads, config.kv_heads, config.ffn, world)
'''),
]

RIGHT = [
    Right("variant_from_what_is_left", "axis after axis, each a divisor of what is left; the least of a sorted list", '''
import math
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig

CALL = 1 << 20  # to begin a transfer takes as long as so many bytes


class Layout(NamedTuple):
    """What is to be chosen; the mesh is pp × dp × ep × tp, and ranks along tp are neighbours."""

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
        bubble: the part of the step's time in which it waits for its pipeline.
    """

    wire: float
    peak: float
    bubble: float

    @property
    def score(self) -> float:
        """The lower the better."""
        return (1 + self.wire) * self.peak * (1 + self.bubble)


def price(config: ModelConfig, layout: Layout, ranks_per_node: int, batch: int) -> Price:
    """Given: prices a layout of which all sizes divide, on a rank of the first stage.

    Args:
        config: the model, in bfloat16, with fp32 gradients and 12 bytes of state a parameter.
        layout: how it is spread.
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
    """The best layout.

    Args:
        config: the model.
        world: how many ranks.
        ranks_per_node: how many of them share a node; the world is a multiple of it, or smaller.
        batch: sequences in a step.
        budget: bytes that a rank may hold.

    Returns:
        The layout with the lowest score of those that fit; None if none does.
    """

    def split(left: int, limit: int) -> list[int]:
        return [n for n in range(1, min(left, limit) + 1) if left % n == 0 and limit % n == 0]

    found = []
    experts = config.moe.experts if config.moe else 1
    for tp in reversed(split(world, math.gcd(config.kv_heads, config.ffn, config.vocabulary))):
        for ep in split(world // tp, experts):
            for pp in split(world // (tp * ep), config.layers):
                dp = world // (tp * ep * pp)
                if batch % (dp * ep) == 0:
                    own = batch // (dp * ep)
                    found += [Layout(pp, dp, ep, tp, m, z) for m in split(own, own) for z in (3, 1)]
    prices = [(price(config, layout, ranks_per_node, batch), layout) for layout in found]
    fitting = [(p.score, layout) for p, layout in prices if p.peak <= budget]
    return min(fitting)[1] if fitting else None
'''),
]
