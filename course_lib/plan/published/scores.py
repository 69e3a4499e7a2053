"""How far predictions are from what was published: each run, each set of runs, and each component.

Notebook: 15 Choosing a strategy (the planner against published runs, with its error band).
Source: plan/data/runs.csv, each row with where it was published.
Costs about twenty seconds, most of them for two runs of thousands of GPUs.
The production version watches these numbers with every change of the simulator.

Components are judged by ratios inside one source. A table of speeds alone can be fitted even with
wrong physics, since one constant takes up the errors of another.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from statistics import median

from course_lib.plan.published.published import predict
from course_lib.plan.published.row import Texts, read

DATA = Path(__file__).parents[1] / "data" / "runs.csv"
# Beginnings of families: the sets that are scored. Of them only the first, the third and the last
# have been fitted to.
SETS: Mapping[str, tuple[str, ...]] = {
    "Megatron-LM, SC21 table 1": ("megatron_sc21_t1",),
    "Megatron-LM, other A100-80": ("megatron_sc21_t2", "korthikanti"),
    "H100 bf16": ("dgxc_llama8b_bf16", "dgxc_llama70b_bf16", "dgxc_nemo15b_bf16"),
    "H100 fp8": ("dgxc_llama8b_fp8", "dgxc_llama70b_fp8", "dgxc_nemo15b_fp8"),
    "Megatron-LM 2020, A100-40": ("megatron_2020",),
    "zero-bubble schedules": ("zerobubble",),
    "llm-foundry, A100-80": ("llmfoundry_A100-80",),
    "llm-foundry, A100-40": ("llmfoundry_A100-40",),
    "llm-foundry, H100": ("llmfoundry_H100",),
    "torchtitan, H100 of 500 W": ("torchtitan",),
    "B200": ("simumax_b200",),
}


@dataclass(frozen=True)
class Scored:
    """One run.

    Attributes:
        row: as published.
        predicted: TFLOP/s of a GPU.
        published: the same, measured.
        band: least and most that were to be expected.
    """

    row: Texts
    predicted: float
    published: float
    band: tuple[float, float]

    @property
    def error(self) -> float:
        """Predicted over published speed, minus 1."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class Summary:
    """A set of runs.

    Attributes:
        errors: absolute, of each run.
        constant: what is left if one TFLOP/s is predicted for all, the best one for this set.
        inside: part of the runs that are in their band.
    """

    errors: tuple[float, ...]
    constant: tuple[float, ...]
    inside: float

    @property
    def middle(self) -> tuple[float, float]:
        """Median error, and that of the constant."""
        return median(self.errors), median(self.constant)

    @property
    def worst(self) -> tuple[float, float]:
        """Largest error, and that of the constant."""
        return max(self.errors), max(self.constant)


def rows(path: Path = DATA) -> list[dict[str, str]]:
    """The published runs."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def published_rate(row: Texts) -> float:
    """TFLOP/s of a GPU that were measured, from the step's seconds where only they are given."""
    if row["tflops_gpu"]:
        return float(row["tflops_gpu"])
    if row["tok_s_gpu"]:
        run = read(row)
        return run.flops / run.config.sequence * float(row["tok_s_gpu"]) / 1e12
    return read(row).tflops(float(row["step_s"]))


def score(table: Sequence[Texts]) -> list[Scored]:
    """Every run that is not declined."""
    found = []
    for row in table:
        made = predict(row)
        if made["tflops_gpu"] is not None and made["band"] is not None:
            found.append(Scored(row, made["tflops_gpu"], published_rate(row), made["band"]))
    return found


def of_set(scored: Sequence[Scored], name: str) -> list[Scored]:
    """The runs of one of `SETS`."""
    return [one for one in scored if one.row["family"].startswith(SETS[name])]


def summary(scored: Sequence[Scored]) -> Summary:
    """Errors of a set, beside those of the best constant (the geometric mean)."""
    rates = [one.published for one in scored]
    constant = math.exp(sum(map(math.log, rates)) / len(rates))
    return Summary(
        tuple(abs(one.error) for one in scored),
        tuple(abs(constant / rate - 1) for rate in rates),
        sum(low <= one.published <= high for one in scored for low, high in [one.band])
        / len(rates),
    )


def _shape(one: Scored) -> tuple[str, int]:
    return one.row["model"], int(one.row["gbs"])


def schedule_pairs(scored: Sequence[Scored]) -> list[tuple[Scored, Scored, bool]]:
    """Pairs of schedules for one model and batch that differ, and if their order is predicted."""
    pairs = []
    for _, group in groupby(sorted(scored, key=_shape), _shape):
        for one, two in combinations(group, 2):
            published = float(one.row["value"]) - float(two.row["value"])
            if published:
                pairs.append((one, two, published * (one.predicted - two.predicted) > 0))
    return pairs


def micro_batch_ratios(scored: Sequence[Scored]) -> list[float]:
    """Errors of the speed with few micro-batches by that with most, one schedule and model each."""

    def kind(one: Scored) -> tuple[str, str]:
        return one.row["model"], one.row["family"]

    errors = []
    for _, group in groupby(sorted(scored, key=kind), kind):
        *few, most = sorted(group, key=lambda one: int(one.row["gbs"]))
        errors += [(1 + one.error) / (1 + most.error) - 1 for one in few]
    return errors


def recompute_ratios(scored: Sequence[Scored]) -> dict[str, tuple[float, float]]:
    """How many times as long a step takes with full as with selective recomputation.

    Returns:
        For each model the predicted and the published ratio.
    """
    times = {(o.row["model"], o.row["recompute"]): o for o in scored}
    ratios = {}
    for model in sorted({model for model, _ in times}):
        if (model, "full") in times and (model, "selective") in times:
            full, some = times[model, "full"], times[model, "selective"]
            ratios[model] = (some.predicted / full.predicted, some.published / full.published)
    return ratios
