"""What layouts cost, which of them can be used, and from which slip a wrong plan comes.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3, for the rules; Rajbhandari et al., "ZeRO"
(2020), section 3, for the 16 bytes a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import NamedTuple

from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import (
    Cluster,
    Memory,
    Stages,
    even_stages,
    memory,
    parse_cluster,
    schedule_of,
    simulate,
)
from course_lib.trace import Refusal

MICRO_BATCH_SIZES = (1, 2, 4, 8)
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
USABLE = 0.9
CALLS = 8

BEYOND_NODE = "tp is beyond a node"
MODEL = "the model does not divide"
BATCH = "the batch does not divide"
FEW = "fewer micro-batches than stages"
MEMORY = "too much memory"
REASONS = (BEYOND_NODE, MODEL, BATCH, FEW, MEMORY)

Family = tuple[int, int, int]  # pp, dp, tp


class Question(NamedTuple):
    """What is asked.

    Attributes:
        shape: of the model, names and numbers.
        gpus: `16xH100`.
        node: GPUs in a node.
        memory: bytes of a GPU.
        batch: sequences of a step.
    """

    shape: tuple[tuple[str, int], ...]
    gpus: str
    node: int
    memory: float
    batch: int

    @property
    def config(self) -> ModelConfig:
        """The model."""
        return ModelConfig(**dict(self.shape))  # type: ignore[arg-type]

    @property
    def cluster(self) -> Cluster:
        """Where it is trained."""
        usual = parse_cluster(self.gpus)
        gpu = replace(usual.gpu, memory=self.memory)
        return replace(usual, node=self.node, adapters=self.node, gpu=gpu)

    @property
    def words(self) -> str:
        """It, for messages."""
        s = dict(self.shape)
        return (
            f"{self.gpus}, {self.node} a node, {self.memory / 1e9:.1f} GB each; {s['layers']} "
            f"layers, {s['heads']}/{s['kv_heads']} heads; batch {self.batch}"
        )


class Costs:
    """The two functions that a reader's `plan` gets, and which layouts they were asked about.

    Args:
        question: whose model and cluster.
    """

    def __init__(self, question: Question) -> None:
        self.config, self.cluster = question.config, question.cluster
        self.asked: list[Layout] = []
        self._pipelines: dict[tuple[int, int], Stages] = {}
        self._alone: dict[tuple[int, Layout], float] = {}

    def memory(self, layout: Layout) -> list[Memory]:
        """Of each stage. A pipeline of p stages never has more than p micro-batches in flight."""
        self._check(layout)
        key = layout.pp, min(layout.pp, layout.micro_batches)
        if key not in self._pipelines:
            schedule = schedule_of(layout, key[1])
            self._pipelines[key] = Stages(schedule, even_stages(self.config, layout.pp))
        stages = self._pipelines[key]
        return [memory(self.config, layout, rank, stages=stages) for rank in range(layout.pp)]

    def seconds(self, layout: Layout) -> float:
        """Of a step: of one stage alone on its part of the cluster, and what a pipeline waits."""
        self._check(layout)
        self.asked.append(layout)
        p, alone = layout.pp, replace(layout, pp=1)
        part = replace(self.config, layers=self.config.layers // p)
        if (key := (p, alone)) not in self._alone:
            cluster = replace(self.cluster, count=self.cluster.count // p)
            self._alone[key] = simulate(part, alone, cluster).seconds
        return self._alone[key] * (1 + (p - 1) / layout.micro_batches)

    def _check(self, layout: Layout) -> None:
        if layout.gpus != self.cluster.count or self.config.layers % layout.pp:
            raise Refusal(
                f"what {layout} costs",
                f"{self.cluster.count} GPUs and {self.config.layers} layers",
                "pp · dp · tp is the number of GPUs, and pp divides the layers",
            )


def why_not(question: Question, family: Family) -> str:
    """The first reason but memory; empty if there is none."""
    (pp, dp, tp), config = family, question.config
    if question.node % tp:
        return BEYOND_NODE
    if config.layers % pp or config.heads % tp or config.kv_heads % tp:
        return MODEL
    if question.batch % dp:
        return BATCH
    return FEW if question.batch // dp < pp else ""


def families(gpus: int) -> Iterator[Family]:
    """All degrees of so many GPUs."""
    sizes = [n for n in range(1, gpus + 1) if gpus % n == 0]
    return ((pp, gpus // pp // tp, tp) for pp, tp in product(sizes, sizes) if not gpus % (pp * tp))


def ways(family: Family, batch: int) -> Iterator[Layout]:
    """All layouts of a family that keep the batch and fill the pipeline; not all fit."""
    pp, dp, tp = family
    for size, zero, again in product(MICRO_BATCH_SIZES, ZERO, RECOMPUTE):
        m, left = divmod(batch // dp, size)
        if not left and m >= pp:
            yield Layout(
                pp, dp, tp=tp, micro_batch_size=size, micro_batches=m, zero=zero, recompute=again
            )


@lru_cache(64)
def enough_for(question: Question, part: float) -> float:
    """Bytes of a GPU with which a part of all layouts that break no rule fits, the last just so."""
    costs = Costs(question)
    held = sorted(
        max(stage.total for stage in costs.memory(way))
        for family in families(costs.cluster.count)
        if not why_not(question, family)
        for way in ways(family, question.batch)
    )
    most = held[int(part * (len(held) - 1))]
    enough = most / USABLE
    while enough * USABLE < most:
        enough = math.nextafter(enough, math.inf)
    return enough


Held = Sequence[Memory]  # of each stage
SLIPS: Mapping[str, Callable[[Held, float], bool]] = MappingProxyType(
    {  # what else may have been taken for fitting, in `room` bytes
        "the optimizer's 12 bytes a parameter were left out: fp32 master weights and two moments":
            lambda held, room: max(m.total - m.optimizer for m in held) <= room,
        "only the first stage was looked at: the last one has the logits":
            lambda held, room: held[0].total <= room,
        "only the last stage was looked at: the first one has the most micro-batches in flight":
            lambda held, room: held[-1].total <= room,
        "stages were averaged: the fullest one decides":
            lambda held, room: sum(m.total for m in held) / len(held) <= room,
        "all of the GPU's memory was used: tensors can have USABLE of it":
            lambda held, room: max(m.total for m in held) <= room / USABLE,
        "only parameters, gradients and optimizer were counted: activations take memory too":
            lambda held, room: max(m.states for m in held) <= room,
        "memory was not looked at": lambda held, room: True,
    }
)  # fmt: skip


class Search:
    """All layouts of a question.

    Attributes:
        refused: families that cannot be used, and why.
        legal: of each family that breaks no rule its layouts, and what they hold.
        fit: of each family that can be used its layouts that fit, and their seconds.
    """

    def __init__(self, question: Question) -> None:
        self.question, self.costs = question, Costs(question)
        self.room = question.memory * USABLE
        self.refused: dict[Family, str] = {}
        self.legal: dict[Family, list[tuple[Layout, Held]]] = {}
        self.fit: dict[Family, dict[Layout, float]] = {}
        for family in families(self.costs.cluster.count):
            self._look_at(family)

    def _look_at(self, family: Family) -> None:
        if why := why_not(self.question, family):
            self.refused[family] = why
            return
        batch = self.question.batch
        held: list[tuple[Layout, Held]] = [
            (way, self.costs.memory(way)) for way in ways(family, batch)
        ]
        self.legal[family] = held
        fit = [way for way, stages in held if max(m.total for m in stages) <= self.room]
        if fit:
            self.fit[family] = {way: self.costs.seconds(way) for way in fit}
        else:
            self.refused[family] = MEMORY

    def best(self, family: Family) -> tuple[Layout, float]:
        """The fastest layout of a family, and its seconds."""
        return min(self.fit[family].items(), key=lambda item: item[1])

    def slip(self, chosen: Sequence[Layout], refused: Sequence[Family]) -> str:
        """Which wrong idea of memory explains a whole plan.

        Args:
            chosen: the layouts of the plan.
            refused: families which it refuses for their memory.
        """
        held = {layout: stages for pairs in self.legal.values() for layout, stages in pairs}
        shown = [held[layout] for layout in chosen if layout in held]
        hidden = [stages for one in refused for _, stages in self.legal.get(one, [])]
        return "; or ".join(
            why
            for why, fits in SLIPS.items()
            if all(fits(stages, self.room) for stages in shown)
            and not any(fits(stages, self.room) for stages in hidden)
        )


@lru_cache(64)
def search(question: Question) -> Search:
    """The same for all checks of a grading."""
    return Search(question)


HABITS: Mapping[str, Callable[[Layout], bool]] = MappingProxyType(
    {  # what alone may have been tried
        "only micro-batches of one sequence were tried": lambda way: way.micro_batch_size == 1,
        "only ZeRO-1 was tried": lambda way: way.zero == 1,
        "only ZeRO-3 was tried": lambda way: way.zero == 3,
        "only layouts without recomputation were tried": lambda way: way.recompute == "none",
        "only layouts with full recomputation were tried": lambda way: way.recompute == "full",
    }
)


def misfit(question: Question, layout: Layout) -> str:
    """Which rule a layout breaks, memory aside; empty if none."""
    p, family = layout.pp, (layout.pp, layout.dp, layout.tp)
    if layout.gpus != question.cluster.count:
        return f"it is for {layout.gpus} GPUs, and there are {question.cluster.count}"
    if why := why_not(question, family):
        extra = f": {layout.tp} of {question.node}" if why == BEYOND_NODE else ""
        return f"its family cannot be used: {why}{extra}"
    if layout.batch != question.batch:
        return (
            f"the batch is not kept: micro_batch_size · micro_batches · dp is {layout.batch}, "
            f"not {question.batch}"
        )
    if layout.micro_batches < p:
        return f"{FEW}: {layout.micro_batches} for {p}; longer micro-batches are fewer"
    tried = (
        layout.micro_batch_size in MICRO_BATCH_SIZES,
        layout.zero in ZERO,
        layout.recompute in RECOMPUTE,
    )
    plain = Layout(
        p,
        layout.dp,
        tp=layout.tp,
        micro_batch_size=layout.micro_batch_size,
        zero=layout.zero,
        micro_batches=layout.micro_batches,
        recompute=layout.recompute,
    )
    if not all(tried) or plain != layout:
        return (
            "micro_batch_size, zero and recompute are one of MICRO_BATCH_SIZES, ZERO, RECOMPUTE; "
            "all else stays as it is"
        )
    return ""


def habit(found: Search, chosen: Sequence[Layout]) -> str:
    """What was not tried, if that explains all layouts of a plan."""

    def explains(tried: Callable[[Layout], bool]) -> bool:
        for way in chosen:
            fit = found.fit.get((way.pp, way.dp, way.tp), {})
            times = [seconds for other, seconds in fit.items() if tried(other)]
            if not tried(way) or way not in fit or fit[way] > min(times):
                return False
        return True

    return "; or ".join(why for why, tried in HABITS.items() if explains(tried))


def show(layout: Layout) -> str:
    """What is chosen of it."""
    again = ", recomputed" if layout.recompute == "full" else ""
    return (
        f"pp {layout.pp} dp {layout.dp} tp {layout.tp}, {layout.micro_batches} micro-batches "
        f"of {layout.micro_batch_size}, ZeRO-{layout.zero}{again}"
    )
