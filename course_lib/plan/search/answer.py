"""A plan as people ask for it: a model by name, a cluster in a word, and an answer to read.

Notebook: 15 Choosing a strategy; `course plan --model llama3-70b --gpus 512xH100 ...`.
Source: the layouts of published runs, which the search is held against (plan.published).
Costs seconds, for any number of GPUs.
The production version is asked by the job scheduler, and answers with a command line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.model.formulas import parameter_count
from course_lib.plan.inputs.calibration import LARGEST, MOST_CP, band, seen
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.search.bill import Bill
from course_lib.plan.search.decision import Case, Decision, decide
from course_lib.plan.search.judge import Verdict, judge, parse_layout, strategy_of, words_of
from course_lib.plan.search.planner import Plan, Problem, Refused, plan
from course_lib.plan.search.question import Wishes, checked
from course_lib.plan.time.simulate import PredictedStep, simulate

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

MAIN = ("TP", "PP", "FSDP")  # words that say how the model gets room
PER_PARAMETER = (
    20  # tokens: Hoffmann et al., "Training Compute-Optimal Large Language Models" (2022)
)


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
        verdict: of the layout that was asked about, if one was.
        bill: what training at the speed of the first layout costs; None if there is none.
    """

    name: str
    config: ModelConfig
    cluster: Cluster
    batch: int
    plan: Plan
    steps: tuple[PredictedStep, ...]
    decision: Decision
    verdict: Verdict | None = None
    bill: Bill | None = None

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
            "words": words_of(self.plan.choices[0].layout) if self.plan.choices else "",
            "verdict": asdict(self.verdict) if self.verdict else None,
            "bill": self._bill(),
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
            lines += [*_table([HEAD, *self._rows()]), "", *map(_folded, self._worth())]
        lines += ["", self.verdict.text()] if self.verdict else []
        bill = f"The first layout processes {self.bill.text()}" if self.bill else ""
        lines += ["", _folded(bill)] if bill else []
        lines += ["", *self._words()]
        lines += ["", f"Not shown: {len(self.plan.refused)} other layouts, among them"]
        return "\n".join([*lines, *(_folded(f"  {why}") for why in reasons(self.plan.refused))])

    def _bill(self) -> dict[str, float] | None:
        if self.bill is None:
            return None
        names = ("days", "gpu_hours", "megawatt_hours", "money")
        return asdict(self.bill) | {name: getattr(self.bill, name) for name in names}

    def _words(self) -> Iterable[str]:
        """The first layout in words; where the lesson's questions say otherwise, how both agree."""
        asked = self.decision.strategy
        if not self.plan.choices:
            yield f"What to do instead: {asked}"
        else:
            taken = strategy_of(self.plan.choices[0].layout)
            yield f"The first in words: {taken}"
            wanted = {w for w in asked.split(" + ") if w in MAIN}
            if wanted != {w for w in taken.split(" + ") if w in MAIN}:
                yield f"By the questions of lesson 15 alone: {asked}"
        yield from (f"  {part.word}: {part.why}" for part in self.decision.advice)

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
                f"{step.seconds:#.3g}".rstrip(".") + " s",
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
        unseen = [one for one in self.plan.refused if one.times]
        best = self.plan.choices[0].seconds
        near = sum(best * one.times * (1 - band(gpu, one.degrees)) < least for one in unseen)
        yield (
            f"The first prediction may be off by {widths[0]:.0%}. Within that band, {close} of the "
            f"other layouts shown and {near} of those not shown may be as fast."
        )
        if not all(seen(gpu, way) for way in ways):
            most = LARGEST.get(gpu)
            yield (
                f"No run with experts, cp beyond {MOST_CP}, or more than {most} {gpu} is in the "
                "published data."
                if most
                else f"No run on {gpu} is in the published data."
            )
        if any(way.zero == 3 for way in ways):
            yield "ZeRO-3's gathers are charged whole; a program that hides them is faster."


def answer(
    name: str,
    gpus: str,
    batch: int,
    sequence: int | None = None,
    precision: str = "bf16",
    wishes: Wishes | None = None,
) -> Answer:
    """Plans the training of a model.

    Args:
        name: of a model in `MODELS`, or of a config.json.
        gpus: how many of which, as `512xH100` or `64x8xH100`.
        batch: sequences in a step, over all GPUs.
        sequence: tokens in one; the model's own if None.
        precision: of the products.
        wishes: what else is asked.

    Raises:
        Refusal: no such model, cluster or precision, or nothing to train on; no such file or word.
    """
    more = wishes or Wishes()
    config, cluster = checked(name, gpus, batch, sequence, precision, more.hardware)
    steps: dict[tuple[int, Layout], PredictedStep] = {}

    def seconds(part: ModelConfig, layout: Layout) -> float:
        step = simulate(part, layout, replace(cluster, count=layout.gpus))
        steps[part.layers, layout] = step
        return step.seconds

    asked = Problem(config, cluster, batch, seconds, precision)
    mine = parse_layout(more.layout, asked) if more.layout else None
    found = plan(asked)
    best = tuple(steps[config.layers, choice.layout] for choice in found.choices)
    return Answer(
        name,
        config,
        cluster,
        batch,
        found,
        best,
        decide(Case(config, cluster, batch)),
        judge(asked, mine, found) if mine else None,
        _bill(config, cluster, batch, best, more),
    )


def _bill(
    config: ModelConfig,
    cluster: Cluster,
    batch: int,
    best: Sequence[PredictedStep],
    wishes: Wishes,
) -> Bill | None:
    """Of the first layout, for as many tokens as are asked for."""
    if not best:
        return None
    tokens = wishes.tokens or PER_PARAMETER * parameter_count(config, active=True)
    rate = batch * config.sequence / best[0].seconds
    return Bill(rate, cluster.count, cluster.gpu.watts, tokens, wishes.price)


def problem(
    name: str, gpus: str, batch: int, sequence: int | None = None, precision: str = "bf16"
) -> Problem:
    """The same question as the planner takes it, its seconds those of the simulator.

    Raises:
        Refusal: as `answer` does.
    """
    config, cluster = checked(name, gpus, batch, sequence, precision)

    def seconds(part: ModelConfig, layout: Layout) -> float:
        return simulate(part, layout, replace(cluster, count=layout.gpus)).seconds

    return Problem(config, cluster, batch, seconds, precision)


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


def _folded(line: str) -> str:
    """A sentence in lines of at most 100 columns, the later ones indented."""
    return textwrap.fill(line, 100, subsequent_indent="    ", break_on_hyphens=False)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
