"""Predictions beside what was published, and beside the best constant TFLOP/s of each set of runs.

First every run of `course_lib/plan/data/runs.csv` that is not declined: predicted and published
TFLOP/s of a GPU, by the source's own definition of a FLOP. Then each set: median and largest error
in percent, beside those of one constant for the whole set (its geometric mean, which no other
constant beats by much); leave-one-out where constants were fitted. Then components, by ratios
inside one source: pairs of pipeline schedules whose order is predicted wrong; the speed with few
micro-batches by that with many; full by selective recomputation. Then this machine's own runs:
predicted by measured bytes of the course's training, on the rank where they differ most. Last, the
time it takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchmarks.row import Row
from benchmarks.training.own_runs import RUNS, measured
from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Memory, memory
from course_lib.plan.inputs.hardware import cluster
from course_lib.plan.inputs.recipe import COURSE
from course_lib.plan.published.fit import curve, fit, leave_one_out
from course_lib.plan.published.row import read
from course_lib.plan.published.scores import (
    SETS,
    Scored,
    micro_batch_ratios,
    of_set,
    recompute_ratios,
    schedule_pairs,
    score,
    summary,
)
from course_lib.plan.published.scores import rows as published
from course_lib.plan.search.answer import answer
from course_lib.plan.time.simulate import simulate
from course_lib.ranks import ForkServer, run_on_ranks

CONSTANT = "constant TFLOP/s"
FITTED_SETS = ("Megatron-LM, SC21 table 1", "H100 bf16", "B200")
LLAMA = ModelConfig(
    layers=126, hidden=16384, heads=128, kv_heads=8, ffn=53248, vocabulary=128256, sequence=8192
)
LARGE = Layout(
    pp=16, dp=800, tp=8, micro_batches=64, schedule="interleaved 1F1B", chunks=4, zero=1,
    sequence=True,
)  # fmt: skip


def run_row(one: Scored) -> Row:
    """One run."""
    low, high = one.band
    note = f"{100 * one.error:+.1f} %" + ("" if low <= one.published <= high else ", out of band")
    name, gpus = one.row["id"], int(one.row["n_gpus"])
    rate = (one.predicted, one.published)
    return Row("plan", name, gpus, 0, *rate, "published", "TFLOP/s", note)


def set_rows(name: str, scored: Sequence[Scored]) -> Iterator[Row]:
    """Median and largest error of a set, and what is left of it without each run."""
    found = summary(scored)
    note = f"{len(scored)} runs, {100 * found.inside:.0f} % in their band"
    for what, (ours, constant) in {"median": found.middle, "largest": found.worst}.items():
        errors = (100 * ours, 100 * constant)
        yield Row("plan", f"{what} error, {name}", 0, 0, *errors, CONSTANT, "%", note)
    if name in FITTED_SETS:
        curves = [curve(read(one.row), one.published) for one in scored]
        again, left_out = fit(curves), max(map(abs, leave_one_out(curves)))
        note = f"fitted again: {again.sustained:.4f}, {again.spread:.5f}"
        what = f"largest error left out, {name}"
        yield Row("plan", what, 0, 0, 100 * left_out, 100 * found.worst[1], CONSTANT, "%", note)


def component_rows(scored: Sequence[Scored]) -> Iterator[Row]:
    """Ratios inside one source."""
    zero_bubble = of_set(scored, "zero-bubble schedules")
    pairs = schedule_pairs(zero_bubble)
    wrong = sum(not right for _, _, right in pairs)
    note = f"of {len(pairs)} pairs; a coin would get half of them wrong"
    yield Row("plan", "pairs in wrong order", 8, 0, wrong, len(pairs) / 2, "coin", "pairs", note)
    worst = 100 * max(map(abs, micro_batch_ratios(zero_bubble)))
    note = "speed with 24 or 32 micro-batches by that with 64"
    yield Row("plan", "largest error of a ratio", 8, 0, worst, None, "", "%", note)
    for model, (ours, theirs) in recompute_ratios(scored).items():
        what = f"full by selective recomputation, {model}"
        yield Row("plan", what, 0, 0, ours, theirs, "published", "")


def classes(expected: Memory) -> dict[str, float]:
    """A prediction by the classes that are measured: all that comes and goes is one."""
    states = {what: getattr(expected, what) for what in ("parameters", "gradients", "optimizer")}
    return {**states, "activations": expected.total - expected.states}


def own_rows() -> Iterator[Row]:
    """Bytes of the course's own training: predicted beside measured, where they differ most."""
    with ForkServer() as server:
        for name, (config, layout) in RUNS.items():
            found = run_on_ranks(measured, layout.gpus, config, layout, server=server, timeout=120)
            both = [(classes(memory(config, layout, index, COURSE)), held) for index, held in found]
            for what in both[0][0]:
                pairs = [(expected[what], held[what]) for expected, held in both]
                worst = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
                yield Row("plan", f"{what}, {name}", layout.gpus, 0, *worst, "measured", "B")


def rows() -> Iterator[Row]:
    """A row for each run, set and component; about a minute on two cores."""
    scored = score(published())
    yield from map(run_row, scored)
    for name in SETS:
        yield from set_rows(name, of_set(scored, name))
    yield from component_rows(scored)
    yield from own_rows()
    began = time.perf_counter()
    step = simulate(LLAMA, LARGE, cluster("H100", LARGE.gpus))
    note = f"pp 16, 4 chunks, dp 800, tp 8, 405B parameters: MFU {step.mfu:.2f}"
    seconds = time.perf_counter() - began
    yield Row("plan", "one layout simulated", LARGE.gpus, 0, seconds, None, "", "s", note)
    began = time.perf_counter()
    found = answer("llama3-405b", "100000xH100", 20_000).plan
    degrees = len(found.choices) + len(found.refused)
    seconds = time.perf_counter() - began
    note = f"405B parameters, batch 20 000; {degrees} ways to cut it"
    yield Row("plan", "all layouts planned", 100_000, 0, seconds, None, "", "s", note)
