"""What ranks exchange in a step, in seconds, axis by axis, and what of it nothing hides.

Notebook: 15 Choosing a strategy (step_time).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3.2; Korthikanti et al. (2022), section 4.2.2
(sequence parallelism sends as much); Liu et al., "Ring Attention" (2023); Rajbhandari et al.,
"ZeRO" (2019), section 7, for what replicas send.
Costs nothing. Axes lie in ranks as tp, cp, ep, dp, pp, the first being neighbours.
The production version measures how much a transfer slows down the product that hides it.
"""

from __future__ import annotations

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import block_parameters
from course_lib.plan.inputs.calibration import HIDDEN
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time.block import token_count
from course_lib.plan.time.cost import Span, fastest, seconds, span

WIDTH = 2  # bytes of an activation on its way


def tensor_sum(config: ModelConfig, layout: Layout, cluster: Cluster, software: Software) -> float:
    """Seconds of one sum over tp that is not hidden; a block has two in each direction.

    With sequence parallelism it is a reduce-scatter and an all-gather, of the same bytes. A
    program that cuts it and its product into pieces hides a part of it.
    """
    payload = token_count(config, layout) * config.hidden * WIDTH
    group = span(layout.tp, 1, cluster)
    if layout.sequence:
        whole = seconds("reduce_scatter", payload, group, cluster)
        whole += seconds("all_gather", payload, group, cluster)
    else:
        whole = fastest("all_reduce", payload, group, cluster)[1]
    return whole * (1 - HIDDEN) if "tp" in software.overlap else whole


def ring_attention(
    config: ModelConfig, layout: Layout, cluster: Cluster, compute: float, passes: int
) -> float:
    """Seconds that attention waits for the keys and values of the next rank of cp.

    Args:
        config: the model's shape.
        layout: the degrees.
        cluster: the links.
        compute: seconds of attention, of which each of cp parts hides a message.
        passes: 1 forward; 2 backward, where gradients of keys and values travel too.
    """
    if layout.cp == 1:
        return 0.0
    group = span(layout.cp, layout.tp, cluster)
    width = config.key_value_width / layout.tp
    part = passes * token_count(config, layout) * width * WIDTH
    hop = seconds("send", part, group, cluster)
    return (layout.cp - 1) * max(0.0, hop - compute / layout.cp)


def expert_exchange(config: ModelConfig, layout: Layout, cluster: Cluster) -> float:
    """Seconds of one of the two all-to-alls of a block with experts."""
    if config.moe is None or layout.ep == 1:
        return 0.0
    payload = token_count(config, layout) * config.hidden * WIDTH
    group = span(layout.ep, layout.tp * layout.cp, cluster)
    near = seconds("all_to_all", payload * config.moe.top_k, group, cluster)
    nodes = min(config.moe.nodes, config.moe.top_k, group.nodes)
    if group.nodes == 1 or not nodes:
        return near
    # A token leaves once for each node that it goes to, and is handed on inside (DeepSeek-AI,
    # "DeepSeek-V3", 2024, section 3.2.2); both links are busy at once.
    each = cluster.leaving(group.local) / group.local
    far = payload * nodes * (group.nodes - 1) / group.nodes / each
    inside = payload * config.moe.top_k / cluster.inside.among(group.local)
    return min(near, (group.nodes - 1) * cluster.between.alpha + max(far, inside))


def stage_message(config: ModelConfig, layout: Layout, cluster: Cluster) -> float:
    """Seconds of an activation's way to the next stage.

    Each of tp sends its part of it; without sequence parallelism they put the parts together.
    """
    if layout.pp == 1:
        return 0.0
    payload = token_count(config, layout) * config.hidden * WIDTH
    stages = span(layout.pp, layout.gpus // layout.pp, cluster)
    group = span(1 if layout.sequence else layout.tp, 1, cluster)
    hop = seconds("send", payload / layout.tp, stages, cluster)
    return hop + seconds("all_gather", payload, group, cluster)


def parameters(config: ModelConfig, layout: Layout) -> tuple[float, float]:
    """Parameters of one block on a rank: those that all replicas share, and those of experts."""
    whole = block_parameters(config)
    if config.moe is None:
        return whole / layout.tp, 0.0
    experts = (3 if config.gated else 2) * config.hidden * config.ffn * config.moe.experts
    return (whole - experts) / layout.tp, experts / layout.tp / layout.ep


def replicas(layout: Layout, cluster: Cluster, *, experts: bool = False) -> Span:
    """The ranks that add up gradients: those with other tokens and the same parameters."""
    if experts:
        return span(layout.dp * layout.cp, layout.tp * layout.ep, cluster)
    return span(layout.replicas, layout.tp, cluster)


def replica_op(
    op: str, width: float, parts: tuple[float, float], layout: Layout, cluster: Cluster
) -> float:
    """Seconds of a collective of the replicas, by the algorithm that is fastest.

    Args:
        op: the collective.
        width: bytes of a number.
        parts: how many numbers all replicas share, and how many belong to experts.
        layout: the degrees.
        cluster: the links.
    """
    return sum(
        fastest(op, width * count, replicas(layout, cluster, experts=experts), cluster)[1]
        for count, experts in zip(parts, (False, True), strict=True)
        if count
    )
