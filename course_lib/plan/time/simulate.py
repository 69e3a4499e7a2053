"""A training step on any cluster, before it runs: seconds, FLOP/s, and where the time goes.

Notebook: 15 Choosing a strategy (step_time, plan), 14 for MFU, HFU and exposed communication.
Paper: Narayanan et al., "Megatron-LM" (2021), sections 2, 3 and 5; Korthikanti et al. (2022),
equation 7, for model FLOPs; Chowdhery et al., "PaLM" (2022), appendix B, for MFU and HFU.
Costs well under a second, for any number of GPUs: equal ranks are computed once.
The production version replays a trace of one step with other sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.calibration import HOST, STREAMING, Fitted, constants_of
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time import exchange, flops
from course_lib.plan.time.bubble import pipeline
from course_lib.plan.time.kernels import Parts, add
from course_lib.plan.time.timing import Setting, Stage, layers_of, stages, total
from course_lib.schedule import Costs, kind_of
from course_lib.trace import Refusal

# Adam in mixed precision reads gradient, both moments and the 32-bit master, writes the last three
# and the 16-bit parameter (2 + 12 + 12 + 2 bytes); before it gradients are scaled, checked and
# their norm is taken (2 + 2 + 2), and afterwards set to zero (2).
ADAM_BYTES = 36


@dataclass(frozen=True)
class PredictedStep:
    """A predicted training step.

    Attributes:
        seconds: of the whole step.
        parts: seconds of the busiest rank by kind: `products`, `attention`, `element-wise`, the
            communication that nothing hides of `tp`, `cp`, `ep`, `dp` and `pp`, `bubble`,
            `optimizer`, and waiting for the `slowest` node. They add up to `seconds`.
        model_flops: of the step, without what is computed again, full attention.
        hardware_flops: with what is computed again.
        gpus: how many.
        peak: FLOP/s of one at the layout's precision.
    """

    seconds: float
    parts: Parts
    model_flops: float
    hardware_flops: float
    gpus: int
    peak: float

    @property
    def tflops(self) -> float:
        """Model TFLOP/s of a GPU."""
        return self.model_flops / self.seconds / self.gpus / 1e12

    @property
    def hardware_tflops(self) -> float:
        """TFLOP/s of a GPU with what is computed again."""
        return self.hardware_flops / self.seconds / self.gpus / 1e12

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization, 0 to 1."""
        return self.tflops * 1e12 / self.peak

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization, 0 to 1."""
        return self.hardware_tflops * 1e12 / self.peak

    @property
    def bubble(self) -> float:
        """Part of the step in which the busiest rank waits for the pipeline."""
        return self.parts["bubble"] / self.seconds

    @property
    def exposed(self) -> Parts:
        """Seconds of communication that nothing hides, by axis."""
        return {axis: self.parts.get(axis, 0.0) for axis in ("tp", "cp", "ep", "dp", "pp")}


def simulate(
    config: ModelConfig,
    layout: Layout,
    cluster: Cluster,
    software: Software | None = None,
    fitted: Fitted | None = None,
) -> PredictedStep:
    """Predicts a step.

    Args:
        config: the model's shape; its `sequence` is the one trained on.
        layout: the degrees, as many GPUs as the cluster has.
        cluster: GPUs and links.
        software: what is fused and hidden; by default what is usual now.
        fitted: the two constants; by default those of the GPU and the kind of run.

    Raises:
        Refusal: the layout needs another number of GPUs.
        ScheduleError: there is no such pipeline.
    """
    if layout.gpus != cluster.count:
        raise Refusal(
            f"a layout of {layout.gpus} GPUs",
            f"a cluster of {cluster.count}",
            "every GPU has its place in the layout",
        )
    constants = fitted or constants_of(cluster.gpu.name, layout) or Fitted()
    setting = Setting(config, layout, cluster, software or Software(), constants)
    parts, window = _pipeline_parts(setting)
    parts = add(parts, _at_the_end(setting, window))
    nodes = -(-cluster.count // cluster.node)
    parts["slowest"] = total(parts) * constants.slowest(nodes)
    sequences = layout.batch
    return PredictedStep(
        seconds=total(parts),
        parts=parts,
        model_flops=sequences * flops.model(config),
        hardware_flops=sequences * flops.hardware(config, layout.recompute),
        gpus=layout.gpus,
        peak=cluster.gpu.peak[layout.precision],
    )


def _pipeline_parts(s: Setting) -> tuple[Parts, float]:
    """Everything up to the last backward, and how long that takes: gradients hide behind it."""
    layout = s.layout
    kind = kind_of(layout.schedule)
    made = stages(s, kind.stages(layout.pp, layout.chunks))
    message = exchange.stage_message(s.config, layout, s.cluster)
    hidden = "pp" in s.software.overlap or kind.halves
    stop = 0.0 if hidden or layout.pp == 1 else HOST + message
    costs = [_costs(stage, stop, message if hidden else 0.0) for stage in made]
    run = pipeline(layout.schedule, layout.pp, layout.micro_batches, layout.chunks, costs)
    slowest = max(range(layout.pp), key=run.busy.__getitem__)
    mine = _mine(made, slowest, layout.pp, layout.schedule)
    work = add(*(stage.parts for stage in mine), times=layout.micro_batches)
    waits = {
        "pp": 2 * len(mine) * stop * layout.micro_batches,
        "bubble": run.seconds - run.busy[slowest],
    }
    return work | waits, sum(total(st.input) + total(st.weight) for st in mine)


def _costs(stage: Stage, stop: float, message: float) -> Costs:
    return Costs(
        total(stage.forward) + stop, total(stage.input) + stop, total(stage.weight), message
    )


def _mine(made: list[Stage], rank: int, p: int, schedule: str) -> list[Stage]:
    """The stages of a rank: folded like a V, or every p-th."""
    if kind_of(schedule).chunks == 2:
        return [made[rank], made[2 * p - 1 - rank]]
    return made[rank::p]


def rank_parameters(s: Setting) -> tuple[float, float]:
    """Parameters of the fullest rank: shared ones (with embedding or head), and experts'."""
    count = max(layers_of(s.config.layers, s.layout.pp))
    tables = 1 if s.layout.pp > 1 or s.config.tied else 2
    shared, experts = exchange.parameters(s.config, s.layout)
    table = tables * s.config.vocabulary * s.config.hidden / s.layout.tp
    return count * shared + table, count * experts


def _at_the_end(s: Setting, window: float) -> Parts:
    """Gradients of the replicas, what of them nothing hides, and the update."""
    layout, gpu = s.layout, s.cluster.gpu
    mine = rank_parameters(s)
    shares = (layout.replicas, layout.dp * layout.cp) if layout.zero else (1, 1)
    updated = sum(count / share for count, share in zip(mine, shares, strict=True))
    seconds = 0.0
    if layout.zero in (1, 2):
        width = s.software.grad_bytes
        seconds = exchange.replica_op("reduce_scatter", width, mine, layout, s.cluster)
        seconds += exchange.replica_op("all_gather", 2, mine, layout, s.cluster)
    elif layout.zero == 0:
        width = s.software.grad_bytes
        seconds = exchange.replica_op("all_reduce", width, mine, layout, s.cluster)
    if "dp" in s.software.overlap:
        pieces = max(layers_of(s.config.layers, layout.pp))
        seconds = max(seconds / pieces, seconds - window)
    return {"dp": seconds, "optimizer": ADAM_BYTES * updated / (gpu.bandwidth * STREAMING)}
