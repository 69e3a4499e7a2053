"""Plans: against every layout there is, on small clusters; and the reasons for what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from course_lib.layout import Layout
from course_lib.model import ModelConfig, MoEConfig
from course_lib.model.formulas import block_parameters
from course_lib.plan.inputs.hardware import Cluster, parse_cluster
from course_lib.plan.inputs.models import model
from course_lib.plan.memory.memory import memory
from course_lib.plan.search.planner import Plan, Problem, plan

SMALL = ModelConfig(
    layers=8, hidden=1024, heads=8, kv_heads=4, ffn=2816, vocabulary=32000, sequence=2048
)  # fmt: skip
EXPERTS = replace(SMALL, moe=MoEConfig(experts=4))


def seconds(config: ModelConfig, layout: Layout) -> float:
    """A step with all that makes one layout slower than another, in a few lines."""
    again = {"none": 3.0, "selective": 3.0, "full": 4.0}[layout.recompute]
    blocks = config.layers / layout.pp * block_parameters(config, active=True)
    own = (blocks + config.vocabulary * config.hidden) / layout.tp  # of the last stage
    tokens = layout.micro_batch_size * config.sequence / layout.cp
    work = 2 * again * own * tokens * (1 + 0.1 / layout.micro_batch_size) / 4e14
    tensor = 8 * config.layers / layout.pp * tokens * config.hidden * (layout.tp > 1) / 2e11
    gathers = 3 if layout.zero == 3 else 2
    replicas = gathers * own * 2 / 4e10 * (layout.replicas > 1)
    wait = {"ZB-H1": 1 / 3}.get(layout.schedule, 1 / layout.chunks)
    m = layout.micro_batches
    return (m + wait * (layout.pp - 1)) * (work + tensor) + replicas


def cramped(gpus: str, gigabytes: float) -> Cluster:
    """A cluster with less memory, so that it matters."""
    cluster = parse_cluster(gpus)
    return replace(cluster, gpu=replace(cluster.gpu, memory=gigabytes * 1e9))


def brute_force(config: ModelConfig, cluster: Cluster, batch: int) -> float:
    """The least seconds of all layouts that fit and obey the rules."""
    best = float("inf")
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= cluster.count]
    for pp, dp, ep, tp, rows in product(sizes, sizes, sizes, sizes, (1, 2, 4, 8)):
        fine = pp * dp * ep * tp == cluster.count and pp <= config.layers and tp <= cluster.node
        experts = config.moe.experts if config.moe else 1
        if not fine or batch % (dp * ep * rows) or ep > experts:
            continue
        m = batch // (dp * ep * rows)
        ways = [("1F1B", 1), ("ZB-H1", 1), ("interleaved 1F1B", 2), ("interleaved 1F1B", 4)]
        for (schedule, chunks), zero, how in product(ways, (0, 1, 3), ("none", "full")):
            uneven = m % pp or config.layers % (pp * chunks)
            if m < pp or (chunks > 1 and uneven) or (zero == 3 and pp > 1):
                continue
            layout = Layout(
                pp, dp, ep, 1, tp, rows, m, schedule, chunks, zero,
                sequence=tp > 1 and config.moe is None, recompute=how,
            )  # fmt: skip
            if memory(config, layout).total <= cluster.gpu.memory * 0.9:
                best = min(best, seconds(config, layout))
    return best


@pytest.mark.parametrize(
    ("config", "gpus", "gigabytes", "batch"),
    [(SMALL, "8xH100", 3, 32), (SMALL, "16xA100", 1.5, 64), (EXPERTS, "8xH100", 4, 32)],
)
def test_near_the_best_of_all(
    config: ModelConfig, gpus: str, gigabytes: float, batch: int
) -> None:  # fmt: skip
    cluster = cramped(gpus, gigabytes)
    found = plan(Problem(config, cluster, batch, seconds))
    assert found.best is not None
    layout = found.best.layout
    assert layout.gpus == cluster.count
    assert layout.batch == batch
    assert layout.tp <= cluster.node
    assert layout.micro_batches >= layout.pp
    assert found.best.memory.total <= cluster.gpu.memory * 0.9
    assert found.best.seconds <= 1.02 * brute_force(config, cluster, batch)


def reasons(found: Plan) -> str:
    return "\n".join(refused.why for refused in found.refused)


def test_says_why_not() -> None:
    found = plan(Problem(model("llama3-70b"), parse_cluster("64xH100"), 16, seconds))
    said = reasons(found)
    for why in (
        "tp 16 exceeds a node of 8",
        "16 sequences do not divide over 64 ranks",
        "micro-batches leave some of",
        "does not fit",
        "times as long as the best",
    ):
        assert why in said
    assert all(choice.seconds >= found.choices[0].seconds for choice in found.choices)
    assert "80 blocks are fewer than 128 stages" in reasons(
        plan(Problem(model("llama3-70b"), parse_cluster("128xH100"), 16, seconds))
    )
    assert "25 heads" in reasons(
        plan(Problem(model("gpt2-xl"), parse_cluster("2xH100"), 8, seconds))
    )


def test_master_weights_are_not_forgotten() -> None:
    """13 billion parameters are 26 GB in 16 bits, and with all that belongs to them 208."""
    found = plan(Problem(model("llama2-13b"), parse_cluster("1xH100"), 1, seconds))
    assert found.best is None
    assert "does not fit" in found.refused[0].why
    eight = plan(Problem(model("llama2-13b"), parse_cluster("8xH100"), 8, seconds))
    assert eight.best is not None
    assert eight.best.layout.zero == 3 or eight.best.layout.tp * eight.best.layout.pp > 1


def test_asks_about_few_layouts_in_full() -> None:
    """Of a pipeline's many layouts most are judged by one stage."""
    asked: list[Layout] = []

    def counting(config: ModelConfig, layout: Layout) -> float:
        asked.append(layout)
        return seconds(config, layout)

    found = plan(Problem(model("llama3-405b"), parse_cluster("4096xH100"), 512, counting), keep=4)
    assert found.best is not None
    assert sum(layout.pp > 1 for layout in asked) <= 8
    assert len(found.choices) <= 4
