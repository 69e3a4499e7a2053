"""How long each stage of the pipeline takes for one micro-batch: F, I and W, by kind of time.

Notebook: 15 Choosing a strategy (step_time).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Qi et al., "Zero Bubble Pipeline
Parallelism" (2023), section 2, for the backward in two parts.
Costs nothing.
The production version profiles each stage instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.calibration import Fitted
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time import exchange
from course_lib.plan.time.block import Work, block, embedding, head
from course_lib.plan.time.kernels import Parts, add, compute


@dataclass(frozen=True)
class Stage:
    """Seconds of a stage for one micro-batch, by kind.

    Attributes:
        forward: F.
        input: I, with what of the forward is computed again.
        weight: W.
    """

    forward: Parts
    input: Parts
    weight: Parts

    @property
    def parts(self) -> Parts:
        """F, I and W together."""
        return add(self.forward, self.input, self.weight)


@dataclass(frozen=True)
class Setting:
    """Everything that a prediction is made from.

    Attributes:
        config: the model's shape.
        layout: the degrees.
        cluster: GPUs and links.
        software: what is fused and hidden.
        fitted: the two constants.
    """

    config: ModelConfig
    layout: Layout
    cluster: Cluster
    software: Software
    fitted: Fitted


def total(parts: Parts) -> float:
    """Seconds of all kinds."""
    return sum(parts.values())


def layers_of(layers: int, stages: int) -> list[int]:
    """How many blocks each stage has.

    Evenly; if two are missing for that, the first and the last stage have one less, for the
    embedding and the head; otherwise the first ones have one more.
    """
    if layers % stages and (layers + 2) % stages == 0:
        even = (layers + 2) // stages
        return [even - (s in (0, stages - 1)) for s in range(stages)]
    return [layers // stages + (s < layers % stages) for s in range(stages)]


def _seconds(work: Work, s: Setting) -> Parts:
    return compute(work, s.cluster.gpu, s.layout, s.software, s.fitted)


def _exchanges(s: Setting, parts: Parts, passes: int) -> Parts:
    """What one way through a block adds for tp, cp and ep."""
    tp = 2 * exchange.tensor_sum(s.config, s.layout, s.cluster, s.software)
    cp = exchange.ring_attention(s.config, s.layout, s.cluster, parts["attention"], passes)
    ep = 2 * exchange.expert_exchange(s.config, s.layout, s.cluster)
    return {"tp": tp, "cp": cp, "ep": ep}


def block_stage(s: Setting) -> Stage:
    """One block."""
    work = block(s.config, s.layout, s.software)
    forward = _seconds(work.forward, s)
    forward = add(forward, _exchanges(s, forward, 1))
    back, weight = _seconds(work.input, s), _seconds(work.weight, s)
    ways = _exchanges(s, back, 2)
    if "wgrad" in s.software.overlap:
        ways["tp"] = max(0.0, ways["tp"] - total(weight))
    again = _seconds(work.again, s)
    if s.layout.recompute == "full":
        again = add(again, _exchanges(s, again, 1))
    return _gathered(s, Stage(forward, add(again, back, ways), weight))


def _gathered(s: Setting, stage: Stage) -> Stage:
    """Full sharding: parameters are gathered twice, and gradients scattered once.

    They are charged whole, although programs send them beside computation: they take from it what
    they would take alone. With this cost fitted, too, llm-foundry's rows give 0.85 of it on the
    A100-80, 0.92 on the A100-40 and 1.02 on the H100. Some reasons: the library's kernels keep
    multiprocessors for themselves and memory busy, and the host holds gathers back to save memory.
    """
    if s.layout.zero < 3 or s.layout.replicas == 1:
        return stage
    parts = exchange.parameters(s.config, s.layout)
    gather = exchange.replica_op("all_gather", 2, parts, s.layout, s.cluster)
    width = s.software.grad_bytes
    scatter = exchange.replica_op("reduce_scatter", width, parts, s.layout, s.cluster)
    return Stage(
        add(stage.forward, {"dp": gather}),
        add(stage.input, {"dp": gather + scatter}),
        stage.weight,
    )


def head_stage(s: Setting) -> Stage:
    """The head and the loss; with tp the head's input gradient is summed too."""
    work = head(s.config, s.layout)
    ways = {"tp": exchange.tensor_sum(s.config, s.layout, s.cluster, s.software)}
    return Stage(
        _seconds(work.forward, s), add(_seconds(work.input, s), ways), _seconds(work.weight, s)
    )


def embedding_stage(s: Setting) -> Stage:
    """The embedding."""
    work = embedding(s.config, s.layout, s.software)
    return Stage(_seconds(work.forward, s), _seconds(work.input, s), _seconds(work.weight, s))


def _joined(one: Stage, two: Stage) -> Stage:
    return Stage(
        add(one.forward, two.forward), add(one.input, two.input), add(one.weight, two.weight)
    )


def stages(s: Setting, count: int) -> list[Stage]:
    """Every stage of the pipeline; the first one has the embedding, the last one the head."""
    one = block_stage(s)
    made = [
        Stage(*(add(part, times=n) for part in (one.forward, one.input, one.weight)))
        for n in layers_of(s.config.layers, count)
    ]
    made[0] = _joined(made[0], embedding_stage(s))
    made[-1] = _joined(made[-1], head_stage(s))
    return made
