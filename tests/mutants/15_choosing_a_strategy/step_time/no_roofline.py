"""mutant: a pass cannot be faster than its bytes move"""

from course_lib.model import ModelConfig
from course_lib.plan import Cluster, Layout


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
    own, tokens = c.layers // pp, layout.rows * c.sequence
    again = layout.recompute == "full"
    rate, bandwidth = efficiency * cluster.gpu.peak[layout.precision], cluster.gpu.bandwidth

    def passes(flops: float, weights: float) -> tuple[float, float]:
        forward = flops / rate
        return forward, 2 * flops / rate

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
