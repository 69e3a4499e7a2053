"""mutant: saved at the end alone"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.checkpoint import AsyncSaver, resume_training, save_training
from course_lib.comm import Group, Mesh
from course_lib.data import WindowSampler
from course_lib.model import AdamW, ModelConfig, Transformer
from course_lib.parallel.schedule import one_f_one_b
from course_lib.train import (
    MeshModel,
    lay_out,
    make_optimizers,
    mesh_training,
    own_micro_batches,
    train_step,
)

MICRO_BATCHES = 2
Watch = Callable[[int, torch.Tensor, float], None]


class Job(NamedTuple):
    """A training on a mesh.

    Attributes:
        model: this rank's part.
        optimizers: of the model; ZeRO-1.
        sampler: of the whole batch's windows, the same on every rank.
    """

    model: MeshModel
    optimizers: list[torch.optim.Optimizer]
    sampler: WindowSampler


def make_job(
    group: Group, sizes: Mapping[str, int], config: ModelConfig, tokens: torch.Tensor, rows: int
) -> Job:
    """A new job; collective.

    Args:
        group: all ranks.
        sizes: of the mesh's axes.
        config: of the model.
        tokens: the text.
        rows: windows in a batch.
    """
    whole = Transformer(config, seed=3).double()
    mesh = Mesh(group, sizes)
    model = lay_out(whole, mesh, one_f_one_b(mesh["pp"].size, MICRO_BATCHES), zero=1)
    sampler = WindowSampler(tokens, config.sequence, rows, seed=5)
    return Job(model, make_optimizers(model, AdamW, lr=0.01), sampler)


def make_step(job: Job, watch: Watch) -> None:
    """The next step; tells the grader its number, its windows and its loss."""
    number = job.sampler.step
    inputs, targets = next(job.sampler)
    batches = own_micro_batches(inputs, targets, job.model)
    report = train_step(job.model, batches, job.optimizers)
    watch(number, inputs, report.loss)


def survive(
    job: Job, group: Group, folder: Path, watch: Watch, *, steps: int, interval: int, keep: int
) -> None:
    """Trains to the end, from wherever the job was interrupted; collective.

    Args:
        job: from `make_job`, new.
        group: all ranks.
        folder: of all checkpoints; perhaps there is none yet.
        watch: for `make_step`.
        steps: of the whole training.
        interval: steps between two saves.
        keep: how many checkpoints stay.
    """
    training = mesh_training(job.model, job.optimizers, {"sampler": job.sampler})
    resume_training(training, folder, group)
    saver = AsyncSaver(folder, group, keep=keep)
    while job.sampler.step < steps:
        make_step(job, watch)
        if job.sampler.step == steps:
            save_training(training, saver, group, step=job.sampler.step)
    saver.wait()
