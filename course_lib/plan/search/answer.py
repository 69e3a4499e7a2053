"""A plan as people ask for it: a model by name, a cluster in a word, and an answer to read.

Notebook: 15 Choosing a strategy; `course plan --model llama3-70b --gpus 512xH100 ...`.
Source: the layouts of published runs, which the search is held against (plan.published).
Costs seconds, for any number of GPUs.
The production version is asked by the job scheduler, and answers with a command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from course_lib.layout import PRECISIONS, Layout
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import parameter_count
from course_lib.plan.inputs.calibration import LARGEST, MOST_CP, band, seen
from course_lib.plan.inputs.hardware import Cluster, parse_cluster
from course_lib.plan.inputs.models import model
from course_lib.plan.search.decision import Case, Decision, decide
from course_lib.plan.search.planner import Plan, Problem, Refused, plan
from course_lib.plan.time.simulate import PredictedStep, simulate
from course_lib.trace import Refusal

HEAD = (
    "pp",
    "dp",
    "ep",
    "cp",
    "tp",
    "mbs",
    "micro",
    "schedule",
    "ZeRO",
    "recompute",
    "memory",
    "step",
    "TFLOP/s",
    "MFU",
    "bubble",
    "exposed",
)

LONGEST = 2**27  # tokens of a sequence; cuts of longer ones are too many to be tried


@dataclass(frozen=True)
class Answer:
    """What was asked, and what was found.

    Attributes:
        name: of the model.
        config: its shape, with the sequence that was asked for.
        cluster: GPUs and links.
        batch: sequences in a step.
        plan: the best layouts, and why not the others.
        steps: what each of the best does in a step.
        decision: what an engineer would begin with, and why.
    """

    name: str
    config: ModelConfig
    cluster: Cluster
    batch: int
    plan: Plan
    steps: tuple[PredictedStep, ...]
    decision: Decision

    def to_dict(self) -> dict[str, Any]:
        """The same for programs: bytes, seconds, TFLOP/s of a GPU, parts of one."""
        choices = []
        for choice, step in zip(self.plan.choices, self.steps, strict=True):
            choices.append(
                {
                    "layout": asdict(choice.layout),
                    "memory": asdict(choice.memory) | {"total": choice.memory.total},
                    "seconds": step.seconds,
                    "band": band(self.cluster.gpu.name, choice.layout),
                    "tflops": step.tflops,
                    "mfu": step.mfu,
                    "hfu": step.hfu,
                    "parts": dict(step.parts),
                }
            )
        return {
            "model": self.name,
            "gpu": self.cluster.gpu.name,
            "gpus": self.cluster.count,
            "batch": self.batch,
            "sequence": self.config.sequence,
            "choices": choices,
            "advice": [asdict(part) for part in self.decision.advice],
            "refused": [
                {"degrees": asdict(one.degrees), "why": one.why} for one in self.plan.refused
            ],
        }

    def text(self) -> str:
        """A table of the best, what they are worth, and the reasons against the others."""
        cluster, millions = self.cluster, self.batch * self.config.sequence / 1e6
        lines = [
            f"{self.name}: {parameter_count(self.config) / 1e9:.1f} billion parameters on "
            f"{cluster.count} {cluster.gpu.name}, {cluster.node} in a node; a step has "
            f"{self.batch} sequences of {self.config.sequence}, {millions:.1f} million tokens",
            "",
        ]
        if not self.plan.choices:
            lines.append("No layout fits.")
        else:
            lines += [*_table([HEAD, *self._rows()]), "", *self._worth()]
        lines += ["", f"To begin with, in words: {self.decision.strategy}"]
        lines += [f"  {part.word}: {part.why}" for part in self.decision.advice]
        lines += ["", f"Not taken: {len(self.plan.refused)} other ways to cut it, among them"]
        return "\n".join(lines + [f"  {line}" for line in reasons(self.plan.refused)])

    def _rows(self) -> Iterable[Sequence[str]]:
        for choice, step in zip(self.plan.choices, self.steps, strict=True):
            way = choice.layout
            exposed = sum(step.exposed.values()) / step.seconds
            schedule = way.schedule if way.pp > 1 else "–"
            schedule += f" ×{way.chunks}" if way.chunks > 1 else ""
            yield (
                *map(str, (way.pp, way.dp, way.ep, way.cp, way.tp)),
                *map(str, (way.micro_batch_size, way.micro_batches)),
                schedule,
                str(way.zero),
                way.recompute,
                f"{choice.memory.total / 1e9:.1f} GB",
                f"{step.seconds:.3g} s",
                f"{step.tflops:.0f}",
                f"{step.mfu:.1%}",
                f"{step.bubble:.1%}",
                f"{exposed:.1%}",
            )

    def _worth(self) -> Iterable[str]:
        """How far predictions may be off, and how many of the others that leaves as good."""
        gpu, ways = self.cluster.gpu.name, [choice.layout for choice in self.plan.choices]
        widths = [band(gpu, way) for way in ways]
        least = self.plan.choices[0].seconds * (1 + widths[0])
        close = sum(
            choice.seconds * (1 - width) < least
            for choice, width in zip(self.plan.choices[1:], widths[1:], strict=True)
        )
        yield f"The first may be off by {widths[0]:.0%}; {close} of the others may be as fast."
        if not all(seen(gpu, way) for way in ways):
            most = LARGEST.get(gpu)
            yield (
                f"No run with experts, cp beyond {MOST_CP}, or more than {most} {gpu} is in the "
                "published data."
                if most
                else f"No run on {gpu} is in the published data."
            )
        if any(way.zero == 3 for way in ways):
            yield "ZeRO-3: how well a program hides its gathers decides; few runs are published."


def answer(
    name: str, gpus: str, batch: int, sequence: int | None = None, precision: str = "bf16"
) -> Answer:
    """Plans the training of a known model.

    Args:
        name: of a model in `MODELS`.
        gpus: how many of which, as `512xH100`.
        batch: sequences in a step, over all GPUs.
        sequence: tokens in one; the model's own if None.
        precision: of the products.

    Raises:
        Refusal: no such model, cluster or precision, or nothing to train on.
    """
    config, cluster = _checked(name, gpus, batch, sequence, precision)
    steps: dict[Layout, PredictedStep] = {}

    def seconds(part: ModelConfig, layout: Layout) -> float:
        steps[layout] = simulate(part, layout, replace(cluster, count=layout.gpus))
        return steps[layout].seconds

    found = plan(Problem(config, cluster, batch, seconds, precision))
    best = tuple(steps[choice.layout] for choice in found.choices)
    return Answer(name, config, cluster, batch, found, best, decide(Case(config, cluster, batch)))


def problem(
    name: str, gpus: str, batch: int, sequence: int | None = None, precision: str = "bf16"
) -> Problem:
    """The same question as the planner takes it, its seconds those of the simulator.

    Raises:
        Refusal: as `answer` does.
    """
    config, cluster = _checked(name, gpus, batch, sequence, precision)

    def seconds(part: ModelConfig, layout: Layout) -> float:
        return simulate(part, layout, replace(cluster, count=layout.gpus)).seconds

    return Problem(config, cluster, batch, seconds, precision)


def _checked(
    name: str, gpus: str, batch: int, sequence: int | None, precision: str
) -> tuple[ModelConfig, Cluster]:
    """The model with its sequence, and the cluster, if there is anything to ask about them."""
    cluster, config = parse_cluster(gpus), model(name)
    config = replace(config, sequence=config.sequence if sequence is None else sequence)
    if batch < 1 or not 1 <= config.sequence <= LONGEST or precision not in PRECISIONS:
        raise Refusal(
            f"{batch} sequences of {config.sequence} tokens in {precision}",
            ", ".join(PRECISIONS),
            "a step has at least one sequence, of 1 to 2^27 tokens, and a precision of that list",
        )
    return config, cluster


def reasons(refused: Iterable[Refused], most: int = 8) -> list[str]:
    """Reasons against layouts, one line for each kind of reason, the most frequent first.

    Args:
        refused: layouts that were not taken, and why.
        most: how many lines at most.
    """
    kinds: dict[str, list[Refused]] = {}
    for one in refused:
        kinds.setdefault(re.sub(r"\d[\d.]*", "#", one.why), []).append(one)
    often = sorted(kinds.values(), key=len, reverse=True)
    return [f"{len(same):>5}  {_degrees(same[0].degrees)}: {same[0].why}" for same in often[:most]]


def _degrees(layout: Layout) -> str:
    axes = ("pp", "dp", "ep", "cp", "tp")
    said = [f"{axis} {getattr(layout, axis)}" for axis in axes if getattr(layout, axis) > 1]
    return " × ".join(said) or "one GPU"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
