"""Bytes that a GPU sends in a step, axis by axis, and whether they leave its node.

Notebook: 15 Choosing a strategy (the planner explorer), 13 for the same sums by hand.
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Rajbhandari et al., "ZeRO" (2020),
section 7; the formulas of each collective are those of lesson 01.
Costs nothing: formulas. The blocks' traffic alone: embedding and loss add less than one block.
The production version reads the counters of the adapters.
"""

from __future__ import annotations

from typing import NamedTuple

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time import exchange
from course_lib.plan.time.block import token_count
from course_lib.plan.time.cost import span

WIDTH = exchange.WIDTH  # bytes of an activation, and of a parameter that is gathered


class Traffic(NamedTuple):
    """What a GPU sends over one axis in a step.

    Attributes:
        sent: bytes; the mean over the pipeline's ranks.
        nodes: how many nodes a group of the axis lies on; 1 if it never leaves one.
    """

    sent: float
    nodes: int


def traffic(
    config: ModelConfig, layout: Layout, cluster: Cluster, software: Software | None = None
) -> dict[str, Traffic]:
    """Bytes by axis (`tp`, `cp`, `ep`, `dp`, `pp`), for axes of more than one rank.

    `dp` is all replicas: dp, ep and cp together, which share their gradients.

    Args:
        config: the model's shape.
        layout: the degrees.
        cluster: GPUs and nodes.
        software: its gradients' width; by default what is usual now.
    """
    width = (software or Software()).grad_bytes
    payload = token_count(config, layout) * config.hidden * WIDTH
    passes = 3 if layout.recompute == "full" else 2  # of forwards and input gradients
    blocks = layout.micro_batches * config.layers / layout.pp
    places = {
        "tp": span(layout.tp, 1, cluster),
        "cp": span(layout.cp, layout.tp, cluster),
        "ep": span(layout.ep, layout.tp * layout.cp, cluster),
        "dp": exchange.replicas(layout, cluster),
        "pp": span(layout.pp, layout.gpus // layout.pp, cluster),
    }
    sent = {
        "tp": blocks * 2 * passes * 2 * _others(layout.tp) * payload,
        "cp": blocks * (layout.cp - 1) * _ring(config, layout) * (passes + 1),
        "ep": blocks * 2 * passes * _others(layout.ep) * payload * _choices(config),
        "dp": _gradients(config, layout, width),
        "pp": _messages(layout) * payload / layout.tp,
    }
    return {axis: Traffic(sent[axis], places[axis].nodes) for axis in sent if places[axis].size > 1}


def _others(ranks: int) -> float:
    """Part of a tensor that a rank sends in a reduce-scatter, an all-gather or an all-to-all."""
    return (ranks - 1) / ranks


def _ring(config: ModelConfig, layout: Layout) -> float:
    """Keys and values of a rank: they go round once forward, and twice backward, with gradients."""
    return config.key_value_width / layout.tp * token_count(config, layout) * WIDTH


def _choices(config: ModelConfig) -> int:
    return config.moe.top_k if config.moe else 0


def _messages(layout: Layout) -> float:
    """Activations and gradients that an average rank hands on: the ends hand on only one kind."""
    edges = layout.pp * layout.chunks - 1
    return 2 * layout.micro_batches * edges / layout.pp


def _gradients(config: ModelConfig, layout: Layout, width: float) -> float:
    """Gradients of the replicas, and the parameters that come back."""
    per_block = exchange.parameters(config, layout)
    shares = (layout.replicas, layout.dp * layout.cp)
    each = (
        config.layers
        / layout.pp
        * sum(count * _others(share) for count, share in zip(per_block, shares, strict=True))
    )
    if layout.zero == 3:
        return layout.micro_batches * each * (2 * WIDTH + width)
    return each * (width + (WIDTH if layout.zero else width))
