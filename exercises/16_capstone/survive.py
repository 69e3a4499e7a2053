"""The capstone, second part: a training run that is killed, and continues on a different mesh.

Notebook 16. A cluster takes ranks away and gives others: a job that had four GPUs is started again
on six, or on one. Then the layout is different, and so is every rank's part of the model and of the
optimizer's state. This must not affect the training: each step has the windows, the loss and the
weights that it would have in a single process without interruption.

Here the grader plays the cluster. It calls your `survive` on all ranks, kills a rank (in a step, or
while it writes its part of a checkpoint), and calls it again: new processes, the same folder,
perhaps with a different number of ranks and different sizes of the axes.

Rules
- The job ends when `steps` steps have been made in all, including those of earlier processes.
- If there is a complete checkpoint in the folder, the job continues from the newest one: weights,
  moments, and the position in the data. Otherwise it begins at step 0.
- It saves when the number of steps that have been made is a multiple of `interval`, and at no other
  time. A kill costs at most `interval` steps of work.
- When `survive` returns, all saves are complete.
- After each save the newest `keep` complete checkpoints stay in the folder, and no others.
- A rank may be killed while it saves. An incomplete checkpoint that this leaves in the folder must
  never be loaded.

You may use
- `make_job`, below: a job at step 0 on this mesh. Its `sampler.step` is the number of steps made so
  far; `make_step(job, watch)` makes the next one and increases it. `watch` belongs to the grader.
- `mesh_training(model, optimizers, parts)` describes what to save or load, in any layout: `parts`
  are named objects with `state_dict` and `load_state_dict`, the same on every rank.
- `resume_training(training, folder, group)` continues from the newest complete checkpoint; it
  returns None if there is none.
- `training.snapshot(group)`: keyword arguments for `save_sharded(**snapshot, folder=..., group=...,
  step=..., keep=...)`, which writes a checkpoint that appears all at once; `step` names it.
- `AsyncSaver(folder, group, keep=...)`, `save_training(training, saver, group, step=...)`: the same
  in the background; `saver.wait()` before the end.

Your answer may use `checkpoint`, `comm`, `model`, `schedule`, `data.WindowSampler`,
`train.MeshModel`, `train.lay_out`, `train.make_optimizers`, `train.mesh_training`,
`train.own_micro_batches` and `train.train_step` of `course_lib`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.checkpoint import AsyncSaver, resume_training, save_training
from course_lib.comm import Group, Mesh
from course_lib.data import WindowSampler
from course_lib.model import AdamW, ModelConfig, Transformer
from course_lib.schedule import one_f_one_b
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
    """Makes the next step, and tells the grader its number, its windows and its loss."""
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
        keep: how many checkpoints stay in the folder.
    """
    raise NotImplementedError("survive: survive")
