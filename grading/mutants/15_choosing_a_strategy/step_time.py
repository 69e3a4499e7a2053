"""Wrong and right answers to `step_time`: see `course dev show step_time`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("bubble_a_fraction", ["this is a part of the step"], '''
-        "bubble": (pp - 1) * (blocks + sums + messages),
+        "bubble": (pp - 1) / (m + pp - 1) * (blocks + sums + messages),
'''),
    Wrong("bubble_with_head", ["a stage without the output layer sets it"], '''
-        "bubble": (pp - 1) * (blocks + sums + messages),
+        "bubble": (pp - 1) * (blocks + sum(passes(2 * tokens * table, table)) + sums + messages),
'''),
    Wrong("dp_each_micro_batch", ["once a step", "not for each micro-batch"], '''
-        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
+        "dp": max(0.0, m * all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
'''),
    Wrong("dp_not_hidden", ["the last backward of the blocks hides it"], '''
-        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
+        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster)),
'''),
    Wrong("dp_of_all_weights", ["tp has cut the gradients"], '''
-    gradients = 2 * (own * weights + tables * table)
+    gradients = 2 * tp * (own * weights + tables * table)
'''),
    Wrong("forward_only", ["these are forward only"], '''
-        return forward, max(2 * flops / rate, 12 * weights / bandwidth)
+        return forward, 0.0
'''),
    Wrong("half_the_sums", ["two sums forward and two backward"], '''
-    sums = own * (4 + 2 * again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
+    sums = own * (2 + again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
'''),
    Wrong("head_forgotten", ["the last stage has the output layer", "not in the right order"], '''
-        "compute": m * (blocks + sum(passes(2 * tokens * table, table))),
+        "compute": m * blocks,
'''),
    Wrong("head_spread", ["the last stage has all of the output layer", "not in the right order"], '''
-        "compute": m * (blocks + sum(passes(2 * tokens * table, table))),
+        "compute": m * (blocks + sum(passes(2 * tokens * table, table)) / pp),
'''),
    Wrong("neighbours_in_dp", ["its ranks lie tp apart"], '''
-        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
+        "dp": max(0.0, all_reduce(gradients, layout.dp, 1, cluster) - own * backward),
'''),
    Wrong("no_alpha", ["every message takes α as well"], '''
-    return 2 * (ranks - 1) * (alpha + size / ranks / beta)
+    return 2 * (ranks - 1) * (size / ranks / beta)
'''),
    Wrong("no_attention", ["the FLOPs inside attention are missing"], '''
-    attention = 2 * tokens * c.sequence * c.hidden / tp
+    attention = 0 * tokens * c.sequence * c.hidden / tp
'''),
    Wrong("no_bubble", ["the bubble is missing", "not in the right order"], '''
-        "bubble": (pp - 1) * (blocks + sums + messages),
+        "bubble": 0 * (blocks + sums + messages),
'''),
    Wrong("no_roofline", ["a pass cannot be faster than its bytes move"], '''
-        forward = max(flops / rate, 2 * weights / bandwidth)
-        return forward, max(2 * flops / rate, 12 * weights / bandwidth)
+        forward = flops / rate
+        return forward, 2 * flops / rate
'''),
    Wrong("one_adapter", ["each rank that a node has of the group brings an adapter"], '''
-        adapters = max(1, cluster.node // stride)
+        adapters = 1
'''),
    Wrong("one_trip", ["an all-reduce has 2(N-1) messages", "not in the right order"], '''
-    return 2 * (ranks - 1) * (alpha + size / ranks / beta)
+    return (ranks - 1) * (alpha + size / ranks / beta)
'''),
    Wrong("one_way", ["one message comes and one goes"], '''
-    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden / tp)
+    messages = (pp > 1) * link.seconds(2 * tokens * c.hidden / tp)
'''),
    Wrong("peak_reached", ["products reach `efficiency` of the peak"], '''
-    rate, bandwidth = efficiency * cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth
+    rate, bandwidth = cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth
'''),
    Wrong("recomputation_forgotten", ["`full` computes every block's forward once more"], '''
-    again = layout.recompute == "full"
+    again = False
'''),
    Wrong("seconds_alone", ["step_time does not return a dict"], '''
-    return {
+    return sum({
@@
-    }
+    }.values())
'''),
    Wrong("selective_computes_again", ["only `full` computes forwards again"], '''
-    again = layout.recompute == "full"
+    again = layout.recompute != "none"
'''),
    Wrong("sums_not_made_again", ["`full` makes the forward's two sums again"], '''
-    sums = own * (4 + 2 * again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
+    sums = own * 4 * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
'''),
    Wrong("tp_over_the_network", ["inside a node it is the link `inside`", "not in the right order"], '''
-        alpha, beta = inside.alpha, inside.bandwidth
+        alpha, beta = between.alpha, between.bandwidth
'''),
    Wrong("whole_activations_sent", ["each rank of tp sends its part"], '''
-    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden / tp)
+    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden)
'''),
    Wrong("last_rank_in_the_node", ["2 ranks, 6 apart, 8 GPUs a node"], '''
-    if stride * ranks <= cluster.node:
+    if stride * (ranks - 1) < cluster.node:
'''),
]

RIGHT = [
    Right("variant_by_tokens", "tokens before weights, and the bubble from a slot", '''
from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster


def all_reduce(size: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Seconds of a sum over a group.
"""
    inside, between = cluster.inside, cluster.between
    if stride * ranks <= cluster.node:
        alpha, beta = inside.alpha, inside.bandwidth
    else:
        adapters = max(1, cluster.node // stride)
        alpha, beta = between.alpha, min(inside.bandwidth, adapters * between.bandwidth)
    return 2 * (ranks - 1) * (alpha + size / ranks / beta)


def step_time(
    config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> dict[str, float]:
    """Seconds of a step, term by term.
"""
    c, m, pp, tp = config, layout.micro_batches, layout.pp, layout.tp
    own, tokens = c.layers // pp, layout.micro_batch_size * c.sequence
    again = layout.recompute == "full"
    rate, bandwidth = efficiency * cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth

    def passes(flops: float, weights: float) -> tuple[float, float]:
        forward = max(flops / rate, 2 * weights / bandwidth)
        return forward, max(2 * flops / rate, 12 * weights / bandwidth)

    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
    weights = c.hidden * (2 * (c.hidden + keys) + networks * c.ffn) / tp
    table = c.vocabulary * c.hidden / tp
    attention = 2 * tokens * c.sequence * c.hidden / tp
    forward, backward = passes(2 * tokens * weights + attention, weights)
    blocks = own * ((1 + again) * forward + backward)
    sums = own * (4 + 2 * again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
    link = cluster.inside if layout.gpus <= cluster.node else cluster.between
    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden / tp)
    tables = 1 if pp > 1 or c.tied else 2
    gradients = 2 * (own * weights + tables * table)
    slot = messages + sums + blocks
    return {
        "compute": m * (blocks + sum(passes(2 * tokens * table, table))),
        "tp": m * sums,
        "pp": m * messages,
        "bubble": (pp * slot) - slot,
        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
    }
'''),
    Right("variant_more_terms", "another entry, and whole numbers where nothing is sent", '''
from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster


def all_reduce(size: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Seconds of a sum over a group.
"""
    inside, between = cluster.inside, cluster.between
    if stride * ranks <= cluster.node:
        alpha, beta = inside.alpha, inside.bandwidth
    else:
        adapters = max(1, cluster.node // stride)
        alpha, beta = between.alpha, min(inside.bandwidth, adapters * between.bandwidth)
    return 2 * (ranks - 1) * (alpha + size / ranks / beta)


def step_time(
    config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> dict[str, float]:
    """Seconds of a step, term by term.
"""
    c, m, pp, tp = config, layout.micro_batches, layout.pp, layout.tp
    own, tokens = c.layers // pp, layout.micro_batch_size * c.sequence
    again = layout.recompute == "full"
    rate, bandwidth = efficiency * cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth

    def passes(flops: float, weights: float) -> tuple[float, float]:
        forward = max(flops / rate, 2 * weights / bandwidth)
        return forward, max(2 * flops / rate, 12 * weights / bandwidth)

    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
    weights = c.hidden * (2 * (c.hidden + keys) + networks * c.ffn) / tp
    table = c.vocabulary * c.hidden / tp
    attention = 2 * tokens * c.sequence * c.hidden / tp
    forward, backward = passes(2 * tokens * weights + attention, weights)
    blocks = own * ((1 + again) * forward + backward)
    sums = own * (4 + 2 * again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
    link = cluster.inside if layout.gpus <= cluster.node else cluster.between
    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden / tp)
    tables = 1 if pp > 1 or c.tied else 2
    gradients = 2 * (own * weights + tables * table)
    return {
        "compute": m * (blocks + sum(passes(2 * tokens * table, table))),
        "head": sum(passes(2 * tokens * table, table)),
        "tp": m * sums if tp > 1 else 0,
        "pp": m * messages,
        "bubble": (pp - 1) * (blocks + sums + messages),
        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
    }
'''),
    Right("variant_reduce_scatter", "a sum is a reduce-scatter and an all-gather", '''
from course_lib.model import ModelConfig
from course_lib.layout import Layout
from course_lib.plan import Cluster


def all_reduce(size: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Seconds of a sum over a group.
"""
    inside, between = cluster.inside, cluster.between
    if stride * ranks <= cluster.node:
        alpha, beta = inside.alpha, inside.bandwidth
    else:
        adapters = max(1, cluster.node // stride)
        alpha, beta = between.alpha, min(inside.bandwidth, adapters * between.bandwidth)
    scatter = (ranks - 1) * alpha + (1 - 1 / ranks) * size / beta
    gather = scatter
    return scatter + gather


def step_time(
    config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> dict[str, float]:
    """Seconds of a step, term by term.
"""
    c, m, pp, tp = config, layout.micro_batches, layout.pp, layout.tp
    own, tokens = c.layers // pp, layout.micro_batch_size * c.sequence
    again = layout.recompute == "full"
    rate, bandwidth = efficiency * cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth

    def passes(flops: float, weights: float) -> tuple[float, float]:
        forward = max(flops / rate, 2 * weights / bandwidth)
        return forward, max(2 * flops / rate, 12 * weights / bandwidth)

    keys, networks = c.kv_heads * c.head_width, 3 if c.gated else 2
    weights = c.hidden * (2 * (c.hidden + keys) + networks * c.ffn) / tp
    table = c.vocabulary * c.hidden / tp
    attention = 2 * tokens * c.sequence * c.hidden / tp
    forward, backward = passes(2 * tokens * weights + attention, weights)
    blocks = own * ((1 + again) * forward + backward)
    sums = own * (4 + 2 * again) * all_reduce(2 * tokens * c.hidden, tp, 1, cluster)
    link = cluster.inside if layout.gpus <= cluster.node else cluster.between
    messages = (pp > 1) * 2 * link.seconds(2 * tokens * c.hidden / tp)
    tables = 1 if pp > 1 or c.tied else 2
    gradients = 2 * (own * weights + tables * table)
    return {
        "compute": m * (blocks + sum(passes(2 * tokens * table, table))),
        "tp": m * sums,
        "pp": m * messages,
        "bubble": (pp - 1) * (blocks + sums + messages),
        "dp": max(0.0, all_reduce(gradients, layout.dp, tp, cluster) - own * backward),
    }
'''),
]
