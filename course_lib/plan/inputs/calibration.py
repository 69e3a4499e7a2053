"""Two numbers for each GPU, fitted to published runs alone, and a few that were chosen for all.

Notebook: 15 Choosing a strategy (the planner against published runs, with its error band).
Source: plan/data/*.csv, each row with where it was published.
Costs nothing; `python -m benchmarks plan` prints what is left of the error, and fits again.
The production version fits a dozen, for its own cluster, every week.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from course_lib.layout import Layout

# Three round numbers, the same for every GPU; chosen with a look at the same runs, not fitted.
# Part of the sheet's memory bandwidth that element-wise kernels reach; with 0.65 or 0.75 the errors
# of table 1 and of the H100 grow by tenths of a percent.
STREAMING = 0.7
# Bytes/s of element-wise kernels that run one by one, however fast the memory is. Fitted alone,
# llm-foundry's rows give 1.18e12 on the A100-40, 1.24e12 on the A100-80 and 1.34e12 on the H100.
EAGER = 1.25e12
# Part of tp's communication that products hide when a program cuts both into pieces.
HIDDEN = 0.5
# Seconds from a stage's message until the GPU is busy again, where the host waits for the message:
# 15 operators of 10 µs. From 0.1 to 0.2 ms all pairs of zero-bubble schedules are in order.
HOST = 0.15e-3


@dataclass(frozen=True)
class Fitted:
    """The two constants of a GPU.

    Attributes:
        sustained: rate of products in a long run by the fastest that was measured alone; heat, and
            kernels that are not the best for their shape.
        spread: standard deviation of a node's step time, in parts of it. All wait for the slowest
            of n nodes, which of n normal numbers lies about √(2 ln n) deviations above the mean.
        band: by how much of itself a prediction may be off; not used in it.
    """

    sustained: float = 0.88
    spread: float = 0.0
    band: float = 0.25

    def slowest(self, nodes: int) -> float:
        """How much longer a step on `nodes` nodes is than on one, as a fraction of it."""
        return self.spread * math.sqrt(2 * math.log(max(nodes, 1)))


# A100 on the ten runs of Megatron-LM's table 1 (SC21), H100 on NVIDIA's 19 bf16 runs of three
# models (dgxc), B200 on those nine of SimuMax's runs that `published` does not decline. What the
# chips share they share here too. STREAMING, HIDDEN and HOST were chosen with these and the A100's
# other runs in view; the H100's runs in fp8 are predicted with the constants of bf16.
# A band holds 90 % of the runs of any source that the constants were not fitted to, also of the one
# that is predicted worst (`published.bands`): on A100 Megatron's table 1 from the papers that came
# after it, and they from it; on A100-40 Megatron's runs of 2020; on H100 NeMo's of 2024. No other
# author's run on B200 was published.
_A100 = Fitted(0.89, 0.0, 0.09)
_H100 = Fitted(0.8875, 0.01125, 0.16)
FITTED: Mapping[str, Fitted] = MappingProxyType(
    {
        "A100-40": Fitted(_A100.sustained, _A100.spread, 0.12),
        "A100-80": _A100,
        "H100": _H100,
        "H200": _H100,
        "B200": Fitted(0.5925, 0.0),
        "here": Fitted(1.0, 0.0),  # plan.inputs.measure has measured what it sustains
    }
)


# FSDP in PyTorch, on llm-foundry's rows, GPU by GPU. `time.timing` charges its gathers, which was
# chosen with these rows in view, as were EAGER, `kernels.FIRST` and the early stop. The H100 of 500
# watts is not fitted: power goes with the third power of the clock (frequency times voltage
# squared), so that it keeps (500 / 700)^⅓ of the other's rate. The band holds 90 % of each GPU's
# runs with the constant of the two others, and of torchtitan's, to which nothing was fitted.
SHARDED: Mapping[str, Fitted] = MappingProxyType(
    {
        "A100-40": Fitted(0.825, 0.0, 0.15),
        "A100-80": Fitted(0.875, 0.0, 0.15),
        "H100": Fitted(0.805, 0.0, 0.15),
        "H100-500W": Fitted(0.72, 0.0, 0.15),
        "H200": Fitted(0.805, 0.0),
    }
)


def constants_of(gpu: str, layout: Layout) -> Fitted | None:
    """The constants of a kind of run; None where nothing like it was published."""
    own = FITTED.get(gpu)
    return SHARDED.get(gpu, own) if layout.zero == 3 else own


# GPUs of the largest run of a kind in data/runs.csv. Beyond that, with experts, and with sequences
# cut over more than two ranks, no prediction has been held against a run.
LARGEST: Mapping[str, int] = MappingProxyType(
    {"A100-40": 1024, "A100-80": 3072, "H100": 2048, "H100-500W": 128, "B200": 8}
)
MOST_CP = 2


def seen(gpu: str, layout: Layout) -> bool:
    """Whether runs like this one were published, which the simulator was held against."""
    usual = layout.ep == 1 and layout.cp <= MOST_CP
    return usual and layout.gpus <= LARGEST.get(gpu, 0)


def band(gpu: str, layout: Layout) -> float:
    """How far a predicted step may be off, as a fraction of it; more where no run was published.

    Args:
        gpu: its name in the table of GPUs.
        layout: how the model is spread.
    """
    if not seen(gpu, layout):
        return Fitted().band
    found = constants_of(gpu, layout)
    return found.band if found else Fitted().band
