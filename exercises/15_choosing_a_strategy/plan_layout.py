"""A planner: for each way to spread a model the fastest layout, or why there is none.

Notebook 15. A family is three degrees `(pp, dp, tp)`: pipeline stages, replicas, and ranks that
share a layer; their product is the number of GPUs. Go through all families that there are. Either
one can be used: then the plan has its fastest layout. Or it cannot: then the plan says why not. The
runners-up and the reasons are worth as much as the winner: they show what was tried, and what to do
when a node is taken away.

A family is refused with the first of these reasons that holds, in this order:

- `BEYOND_NODE`: tp does not divide the GPUs of a node, or is more than they are. Such a group lies
  on two nodes, and it sends in every layer;
- `MODEL`: pp does not divide the layers, or tp not the heads, or not the key-value heads;
- `BATCH`: dp does not divide the batch;
- `FEW`: there are fewer micro-batches than pp, even with one sequence in each, so that a stage is
  idle all the time;
- `MEMORY`: none of its layouts fits.

A layout of a family has micro-batches of 1, 2, 4 or 8 sequences (`MICRO_BATCH_SIZES`) and ZeRO
stage 1 or 3 (`ZERO`), and it computes blocks again in the backward or not (`RECOMPUTE`). These are
at most 16 ways, for each of the dp ranks cuts its `batch / dp` sequences into equal micro-batches,
at least pp of them. All other fields of `course_lib.layout.Layout` stay as they are. A layout fits
if a rank of its fullest stage holds at most `USABLE` of a GPU's memory; the driver and NCCL need
the rest.

What it costs is not yours to work out. `plan` gets two functions, which predict it:

- `memory(layout)` returns a list with one `course_lib.plan.Memory` for each stage of the pipeline,
  the first stage first. Its `total` is what a rank of the stage holds at its worst moment, and has
  `parameters`, `gradients`, `optimizer` (which are 2, 4 and 12 bytes a parameter, before ZeRO cuts
  them), `activations` and some more. It is cheap.
- `seconds(layout)` returns how long a step takes. It is expensive: think of ten minutes on the
  cluster for each call. So call it, on average, at most `CALLS` times for a family that can be
  used, and never for a layout that does not fit. Full recomputation saves memory, and never makes
  a step faster: what fits without it need not be tried with it.

In a notebook the two are the library's own (`import course_lib.plan as library`); the grader's are
made of the same, but take a pipeline's wait from the formula `(pp - 1) / micro_batches`:

    memory = lambda layout: [library.memory(config, layout, stage=s) for s in range(layout.pp)]
    seconds = lambda layout: library.simulate(config, layout, cluster).seconds

A layout of yours may be 5 % slower than the fastest that fits in its family. Clusters may be large:
two seconds of processor time for 24576 GPUs are too few to try all numbers for all three degrees.
It is one process, nothing is sent, and all of Python is allowed except the library's own planner.
Only `plan` is graded; `why_not` is there to give it a shape.

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
        config: the model: `layers`, `heads`, `kv_heads` are of use here.
        cluster: `count` GPUs, `node` of them in a node; `gpu.memory` in bytes.
        batch: sequences of a step, all ranks together.
        memory: what the ranks of each stage hold, the first stage first.
        seconds: how long a step takes.

    Returns:
        The fastest layouts, and the reasons.
    """
    raise NotImplementedError("plan_layout: write your answer here")
