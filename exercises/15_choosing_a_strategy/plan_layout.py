"""A planner: for each way to divide a model, find the fastest layout or say why there is none.

Notebook 15. A family is three degrees `(pp, dp, tp)`: pipeline stages, replicas, and ranks that
share a layer; their product is the number of GPUs. Go through all possible families. If a family
can be used, the plan contains its fastest layout. If not, the plan contains the reason. The
runners-up and the reasons are as useful as the winner: they show what was tried, and what to do
when a node is lost.

A family is refused with the first of these reasons that holds, in this order:

- `BEYOND_NODE`: tp does not divide the number of GPUs in a node, or exceeds it. Such a group would
  span two nodes, and it communicates in every layer;
- `MODEL`: pp does not divide the layers, or tp does not divide the heads or the key-value heads;
- `BATCH`: dp does not divide the batch;
- `FEW`: there are fewer micro-batches than pp, even with one sequence in each, so that some stage
  is always idle;
- `MEMORY`: none of its layouts fits.

A layout of a family has micro-batches of 1, 2, 4 or 8 sequences (`MICRO_BATCH_SIZES`) and ZeRO
stage 1 or 3 (`ZERO`), and recomputes blocks in the backward or not (`RECOMPUTE`). These are at most
16 layouts: each of the dp ranks cuts its `batch / dp` sequences into equal micro-batches, at least
pp of them. All other fields of `course_lib.layout.Layout` keep their defaults. A layout fits if a
rank of its fullest stage holds at most `USABLE` of a GPU's memory; the driver and NCCL need the
rest.

You need not compute the costs yourself. `plan` gets two functions that predict them:

- `memory(layout)` returns a list with one `course_lib.plan.Memory` for each stage of the pipeline,
  the first stage first. Its `total` is what a rank of the stage holds at its peak; it includes
  `parameters`, `gradients`, `optimizer` (2, 4 and 12 bytes per parameter, before ZeRO cuts them),
  `activations` and more. This function is cheap.
- `seconds(layout)` returns how long a step takes. It is expensive: imagine ten minutes on the
  cluster for each call. So call it, on average, at most `CALLS` times per family that can be used,
  and never for a layout that does not fit. Full recomputation saves memory and never makes a step
  faster: do not try it where the layout fits without it.

In a notebook, you can take both from the library (`import course_lib.plan as library`); the
grader's are built from the same parts, but take a pipeline's idle time from the formula `(pp - 1) /
micro_batches`:

    memory = lambda layout: [library.memory(config, layout, stage=s) for s in range(layout.pp)]
    seconds = lambda layout: library.simulate(config, layout, cluster).seconds

Your layout may be up to 5 % slower than the fastest of its family that fits. Clusters may be large:
with 24576 GPUs you have two seconds of processor time, too little to try all numbers for all three
degrees. Nothing is sent, and you may use all of Python except the library's own planner. Only
`plan` is graded; `why_not` is a suggestion for its structure.

Your answer may use `layout`, `model.ModelConfig`, `plan.Cluster` and `plan.Memory` of `course_lib`.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Cluster, Memory

MICRO_BATCH_SIZES = (1, 2, 4, 8)
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
    """A layout that can be used, and the result of `seconds` for it."""

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
    """Returns the first reason, except `MEMORY`, that holds for a family; "" if none does."""
    raise NotImplementedError("plan_layout: write your answer here")


def plan(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    memory: Callable[[Layout], list[Memory]],
    seconds: Callable[[Layout], float],
) -> Plan:
    """Searches all layouts of a model on a cluster.

    Args:
        config: the model; you need its `layers`, `heads` and `kv_heads`.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: predicts what the ranks of each stage hold; see above.
        seconds: predicts how long a step takes; see above.

    Returns:
        The fastest layouts, and the reasons.
    """
    raise NotImplementedError("plan_layout: write your answer here")
