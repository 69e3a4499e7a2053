"""Predicts any published run from its row in a table, or says why not.

Notebook: 15 Choosing a strategy (the planner against published runs, with its error band).
Source: plan/data/runs.csv, each row with where it was published.
Costs a few seconds for a pipeline of thousands of GPUs, less for all others.
The production version is a spreadsheet of one's own runs.

A prediction is declined where the model is known to fail: the rate of products hangs on a
micro-batch that is not published; parameters are gathered by programs of which it is not known
what they hide, or fill the memory; kernels are so short that starting them decides; links were
never measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from course_lib.plan.inputs.calibration import Fitted, band, constants_of
from course_lib.plan.memory.memory import memory
from course_lib.plan.published.row import Declined, Row, Run, read
from course_lib.plan.time.simulate import PredictedStep, simulate
from course_lib.plan.time.stages import Stages, enough_micro_batches, even_stages, schedule_of
from course_lib.schedule import ScheduleError
from course_lib.trace import Refusal

GIB = 2**30
SHORTEST = 0.5e-3  # seconds of a block's forward, below which starting its kernels decides
ASSUMED_LINK = 0.15  # part of a step that may hang on a link whose rate is assumed
# Of the memory; gathered parameters come and go on a stream of their own, and beyond this the
# allocator gives back and asks again: Zhao et al., "PyTorch FSDP" (2023), section 3.4.
FULL = 0.85


class Prediction(TypedDict):
    """What `predict` returns; where it declines, `reason` says why and the speed is None.

    Keys:
        tflops_gpu: TFLOP/s of a GPU, by the row's own definition.
        mem_gb: GiB on the fullest rank, None if it cannot be predicted.
        band: the least and the most TFLOP/s to expect.
        reason: why there is no speed; None if there is.
    """

    tflops_gpu: float | None
    mem_gb: float | None
    band: tuple[float, float] | None
    reason: str | None


def predict(row: Row, fitted: Fitted | None = None) -> Prediction:
    """Speed and memory of a published run.

    Args:
        row: by column, as in data/runs.csv; what is not known is empty. What was measured
            (value, step_s, tok_s_gpu, tflops_gpu, mfu_pct, mem_gb) is ignored.
        fitted: the two constants; by default those of the GPU.
    """
    try:
        run = read(row)
    except Declined as why:
        return {"tflops_gpu": None, "mem_gb": None, "band": None, "reason": str(why)}
    memory_ = None if run.partly else mem_gib(run)
    try:
        rate, width = speed(run, row, fitted)
    except Declined as why:
        return {"tflops_gpu": None, "mem_gb": memory_, "band": None, "reason": str(why)}
    expected = (rate * (1 - width), rate * (1 + width))
    return {"tflops_gpu": rate, "mem_gb": memory_, "band": expected, "reason": None}


def speed(run: Run, row: Row, fitted: Fitted | None = None) -> tuple[float, float]:
    """TFLOP/s of a GPU, and how far it may be off, as a fraction of it.

    Raises:
        Declined: the model is known to fail on such runs.
    """
    gpu = run.cluster.gpu.name
    constants = fitted or constants_of(gpu, run.layout)
    if constants is None:
        raise Declined(f"nothing was published from which to fit constants of {gpu}")
    if "shapes filled in from memory" in str(row.get("notes", "")):
        raise Declined("its shape is not from the source")
    sharded = run.layout.zero == 3
    if sharded and not run.software.recipe.flash:
        raise Declined("it gathers tensor by tensor, as DeepSpeed did in 2021, at its own rate")
    if sharded and (_least(run) or 0) * GIB > FULL * run.cluster.gpu.memory:
        raise Declined("memory is so full that the allocator decides")
    ends = [run.layout, replace(run.layout, recompute="full")] if run.partly else [run.layout]
    try:
        steps = [simulate(run.config, e, run.cluster, run.software, constants) for e in ends]
    except ScheduleError as error:
        raise Declined(f"{error.asked}: {error.found}, but {error.why}") from error
    _check_step(run, steps[0])
    least, most = steps[0].seconds, steps[-1].seconds
    middle = (least + most) / 2
    return run.tflops(middle), band(gpu, run.layout) + (most - least) / 2 / middle


def _check_step(run: Run, step: PredictedStep) -> None:
    """Declines what a look at the simulated step shows to be beyond the model."""
    layout = run.layout
    blocks = run.config.layers / layout.pp * layout.micro_batches
    if step.parts["products"] / blocks / 3 < SHORTEST:
        raise Declined("kernels are so short that starting them decides")
    if run.cluster.gpu.name == "B200" and step.exposed["tp"] > ASSUMED_LINK * step.seconds:
        raise Declined("much of it hangs on links inside a B200 node, whose rate is assumed")


def _least(run: Run) -> float | None:
    """GiB with everything computed again, if it is not known what is."""
    lean = replace(run, layout=replace(run.layout, recompute="full"))
    return mem_gib(lean if run.partly else run)


def mem_gib(run: Run) -> float | None:
    """GiB on the fullest rank of stages of equal size; None if it cannot be predicted."""
    try:
        schedule = schedule_of(run.layout, enough_micro_batches(run.layout))
        stages = Stages(schedule, even_stages(run.config, schedule.stages))
        return memory(run.config, run.layout, recipe=run.software.recipe, stages=stages).total / GIB
    except Refusal:
        return None
