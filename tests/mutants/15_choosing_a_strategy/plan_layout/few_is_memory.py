"""mutant: the reason is another, fewer micro-batches than stages"""

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
    return ""


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
    room = cluster.gpu.memory * USABLE

    def fitting(pp: int, dp: int, tp: int) -> list[Layout]:
        found = []
        for rows, zero in product(ROWS, ZERO):
            m, left = divmod(batch // dp, rows)
            if left or m < pp:
                continue
            for recompute in RECOMPUTE:
                way = Layout(
                    pp, dp, tp=tp, rows=rows, micro_batches=m, zero=zero, recompute=recompute
                )
                if max(stage.total for stage in memory(way)) <= room:
                    found.append(way)
                    break
        return found

    choices, refused = [], {}
    sizes = [n for n in range(1, cluster.count + 1) if cluster.count % n == 0]
    for pp, tp in product(sizes, sizes):
        dp, left = divmod(cluster.count, pp * tp)
        if left:
            continue
        why = why_not(config, cluster, batch, (pp, dp, tp))
        ways = [] if why else fitting(pp, dp, tp)
        if ways:
            choices.append(
                min((Choice(way, seconds(way)) for way in ways), key=lambda c: c.seconds)
            )
        else:
            refused[pp, dp, tp] = why or MEMORY
    return Plan(sorted(choices, key=lambda choice: choice.seconds), refused)
