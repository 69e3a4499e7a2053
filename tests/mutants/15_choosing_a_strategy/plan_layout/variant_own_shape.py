"""variant: no helper, dp and tp first, a try with recomputation only if the other fails"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from course_lib.model import ModelConfig
from course_lib.plan import Cluster, Layout, Memory

ROWS = (1, 2, 4, 8)
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
USABLE = 0.9  # of a GPU's memory
CALLS = 8  # of `seconds`, for a family that can be used

BEYOND_NODE = "tp is beyond a node"
MODEL = "the model does not divide"
BATCH = "the batch does not divide"
FEW = "fewer micro-batches than stages"
MEMORY = "too much memory"

Family = tuple[int, int, int]  # pp, dp, tp


class Choice(NamedTuple):
    """A layout that can be used, and what `seconds` says of it."""

    layout: Layout
    seconds: float


class Plan(NamedTuple):
    """What a search finds.

    Attributes:
        choices: the fastest layout of each family that can be used, the fastest family first: the
            best, and the runners-up. Empty if there is none.
        refused: for every other family, by (pp, dp, tp), one of the five reasons above.
    """

    choices: list[Choice]
    refused: dict[Family, str]


def why_not(config: ModelConfig, cluster: Cluster, batch: int, family: Family) -> str:
    """The first of the reasons but `MEMORY` that holds for a family; empty if none does."""
    pp, dp, tp = family
    if cluster.node % tp:
        return BEYOND_NODE
    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
        return MODEL
    if batch % dp:
        return BATCH
    return FEW if batch // dp < pp else ""


def plan(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    memory: Callable[[Layout], list[Memory]],
    seconds: Callable[[Layout], float],
) -> Plan:
    """Searches all layouts of a model on a cluster.

    Args:
        config: the model: `layers`, `heads`, `kv_heads` are of use here.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: what the ranks of each stage hold, the first stage first.
        seconds: how long a step takes.

    Returns:
        The fastest layouts, and the reasons.
    """
    count, answer = cluster.count, Plan([], {})
    for dp in (n for n in range(1, count + 1) if count % n == 0):
        for tp in (n for n in range(1, count // dp + 1) if count // dp % n == 0):
            pp = count // (dp * tp)
            reasons = {
                BEYOND_NODE: cluster.node % tp,
                MODEL: config.layers % pp or config.heads % tp or config.kv_heads % tp,
                BATCH: batch % dp,
                FEW: batch < pp * dp,
            }
            why = next((reason for reason, holds in reasons.items() if holds), MEMORY)
            best = None
            for rows in ROWS if why == MEMORY else ():
                if batch // dp % rows or batch // dp // rows < pp:
                    continue
                for zero in ZERO:
                    way = Layout(
                        pp=pp, dp=dp, tp=tp, rows=rows, micro_batches=batch // dp // rows, zero=zero
                    )
                    for again in (way, Layout(**{**vars(way), "recompute": "full"})):
                        if all(m.total <= USABLE * cluster.gpu.memory for m in memory(again)):
                            time = seconds(again)
                            if best is None or time < best.seconds:
                                best = Choice(again, time)
                            break
            if best is None:
                answer.refused[pp, dp, tp] = why
            else:
                answer.choices.append(best)
    answer.choices.sort(key=lambda choice: choice.seconds)
    return answer
