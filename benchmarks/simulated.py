"""What a simulated cluster costs, and how near it comes to published runs, beside the planner.

`step` rows: a step of the course's own training program on simulated GPUs: the processor time and
the memory of the one process that simulates it; the note has the step's virtual time. `speed`
rows: TFLOP/s of a GPU as the source counts them, simulated (ours) beside published; the note has
the planner's number. The simulation runs our program on that cluster and not the source's, whose
kernels are fused: it is slower, and holds more, so no rank is short of memory here. What the two
have in common is the order of layouts.
"""

from __future__ import annotations

import json
import math
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from benchmarks.row import Row
from course_lib.cluster import simulate
from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan.inputs.hardware import parse_cluster
from course_lib.plan.published.row import read
from course_lib.plan.published.scores import rows as published
from course_lib.plan.published.scores import score
from course_lib.schedule import SCHEDULES
from course_lib.train import RunConfig
from course_lib.train.simulated import equal_ranks, one_step

LLAMA_70B = ModelConfig(
    layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocabulary=256, sequence=4096
)
LLAMA_405B = ModelConfig(
    layers=128, hidden=16384, heads=128, kv_heads=8, ffn=53248, vocabulary=256, sequence=8192
)
# As the goals have them. 405B has 126 layers, which 16 stages cannot share evenly.
STEPS = {
    "70B": (LLAMA_70B, "64x8xH100", Layout(
        pp=8, dp=8, tp=8, micro_batches=16, zero=1, sequence=True, recompute="selective"
    )),
    "405B": (LLAMA_405B, "2048x8xH100", Layout(
        pp=16, dp=128, tp=8, micro_batches=16, zero=1, sequence=True, recompute="full"
    )),
}  # fmt: skip
PUBLISHED = (
    "sc21t1_1.7B",
    "sc21t1_7.5B",
    "korth_22B_full",
    "korth_22B_selective",
    "simumax_b200_llama3_70b_l12_tp1_pp2_dp4_mbc8_cef",
    "simumax_b200_llama3_70b_tp2_pp1_dp4_l12_mbc8_cef",
    "simumax_b200_llama3_70b_l12_tp4_pp1_dp2_mbc8_cef",
)


@dataclass(frozen=True)
class Simulated:
    """One step.

    Attributes:
        virtual: seconds on the cluster.
        seconds: of processor time, to simulate it.
        held: the most memory of the process that did, in MB.
    """

    virtual: float
    seconds: float
    held: float


def run_config(model: ModelConfig, layout: Layout, folder: Path) -> RunConfig:
    """The run as the training command takes it; the model in a file, for its vocabulary."""
    path = folder / "model.json"
    fields = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "gated", "tied")
    path.write_text(json.dumps({name: asdict(model)[name] for name in fields}))
    return RunConfig(
        pp=layout.pp, dp=layout.dp, cp=layout.cp, tp=layout.tp, zero=layout.zero,
        micro_batches=layout.micro_batches, schedule=SCHEDULES[layout.schedule].word,
        chunks=layout.chunks, sequence_parallel=layout.sequence, precision=layout.precision,
        recompute=layout.recompute, model_file=str(path), sequence=model.sequence,
        batch=layout.batch,
    )  # fmt: skip


def simulated(model: ModelConfig, layout: Layout, cluster: str) -> Simulated:
    """Simulates a step in this process, which has done nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        config = run_config(model, layout, Path(folder))
        hardware = parse_cluster(cluster)
        roomy = replace(hardware, gpu=replace(hardware.gpu, memory=math.inf))
        begin = time.process_time()
        run = simulate(one_step, config.world, config, cluster=roomy, equal=equal_ranks(config))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return Simulated(max(run.values.values()), time.process_time() - begin, held)


def apart(model: ModelConfig, layout: Layout, cluster: str) -> Simulated:
    """The same, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(simulated, model, layout, cluster).result()


def rows() -> Iterator[Row]:
    """Two steps at the size of real runs, then published ones; about eight minutes on one core."""
    for name, (model, cluster, layout) in STEPS.items():
        found = apart(model, layout, cluster)
        note = f"pp {layout.pp}, dp {layout.dp}, tp {layout.tp} on {cluster}: {found.virtual:.2f} s"
        for what, value, unit in (("time", found.seconds, "s"), ("memory", found.held, "MB")):
            yield Row(
                "simulated", f"{name} step, {what}", layout.gpus, 0, value, None, "", unit, note
            )
    for one in score([row for row in published() if row["id"] in PUBLISHED]):
        run, name = read(one.row), one.row["id"]
        found = apart(run.config, run.layout, f"{run.layout.gpus}x{run.cluster.gpu.name}")
        yield Row(
            "simulated", f"speed, {name}", run.layout.gpus, 0, run.tflops(found.virtual),
            one.published, "published", "TFLOP/s", f"the planner {one.predicted:.0f}",
        )  # fmt: skip
