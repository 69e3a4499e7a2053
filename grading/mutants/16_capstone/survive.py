"""Wrong and right answers to `survive`: see `course dev show survive`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("begins_with_the_oldest", ["the work lost by a kill"], '''
 )
+import shutil
+from course_lib.checkpoint import complete_steps
+from course_lib.comm import barrier
@@
     training = mesh_training(job.model, job.optimizers, {"sampler": job.sampler})
+    steps_saved = sorted(complete_steps(folder))
+    if group.index == 0:
+        for newer in steps_saved[1:]:
+            shutil.rmtree(complete_steps(folder)[newer])
+    barrier(group)
'''),
    Wrong("first_rank_saves", ["waits"], '''
-        if job.sampler.step % interval == 0:
+        if group.index == 0 and job.sampler.step % interval == 0:
'''),
    Wrong("folder_for_each_world", ["never saved"], '''
     training = mesh_training(job.model, job.optimizers, {"sampler": job.sampler})
+    folder = folder / str(group.size)
'''),
    Wrong("interval_from_the_resume", ["counted from the step at which this process began"], '''
-    while job.sampler.step < steps:
+    begin = job.sampler.step
+    while job.sampler.step < steps:
@@
-        if job.sampler.step % interval == 0:
+        if (job.sampler.step - begin) % interval == 0:
'''),
    Wrong("keeps_all", ["all are kept"], '''
-    saver = AsyncSaver(folder, group, keep=keep)
+    saver = AsyncSaver(folder, group)
'''),
    Wrong("keeps_one", ["one is kept"], '''
-    saver = AsyncSaver(folder, group, keep=keep)
+    saver = AsyncSaver(folder, group, keep=1)
'''),
    Wrong("keeps_its_own", ["all of earlier processes"], '''
 )
+import shutil
+from course_lib.checkpoint import complete_steps
+from course_lib.comm import barrier
@@
-    saver = AsyncSaver(folder, group, keep=keep)
+    saver, mine = AsyncSaver(folder, group), []
@@
             save_training(training, saver, group, step=job.sampler.step)
+            saver.wait()
+            mine.append(job.sampler.step)
+            if group.index == 0 and len(mine) > keep:
+                shutil.rmtree(complete_steps(folder)[mine[-keep - 1]])
+            barrier(group)
'''),
    Wrong("keeps_two", ["is not what it should be"], '''
-    saver = AsyncSaver(folder, group, keep=keep)
+    saver = AsyncSaver(folder, group, keep=2)
'''),
    Wrong("last_step_not_saved", ["the last save is missing"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step % interval == 0 and job.sampler.step < steps:
'''),
    Wrong("never_resumes", ["the job begins again"], '''
-    resume_training(training, folder, group)
'''),
    Wrong("one_batch_skipped", ["the list of steps made"], '''
-    resume_training(training, folder, group)
+    if resume_training(training, folder, group):
+        next(job.sampler)
'''),
    Wrong("one_off", ["one step off"], '''
-            save_training(training, saver, group, step=job.sampler.step)
+            save_training(training, saver, group, step=job.sampler.step - 1)
'''),
    Wrong("sampler_left_out", ["the job begins again"], '''
-    training = mesh_training(job.model, job.optimizers, {"sampler": job.sampler})
+    training = mesh_training(job.model, job.optimizers, {})
'''),
    Wrong("saves_at_the_end", ["saved only at the end"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step == steps:
'''),
    Wrong("saves_the_last_step_too", ["saved at other steps than multiples"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step % interval == 0 or job.sampler.step == steps:
'''),
    Wrong("saves_every_second_step", ["is not what it should be"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step % 2 == 0:
'''),
    Wrong("saves_every_step", ["saved after every step"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step:
'''),
    Wrong("saves_seldom", ["is not what it should be"], '''
-        if job.sampler.step % interval == 0:
+        if job.sampler.step % (2 * interval) == 0:
'''),
    Wrong("steps_again", ["as many steps as in a whole training"], '''
-    while job.sampler.step < steps:
+    for _ in range(steps):
'''),
    Wrong("weights_forgotten", ["the losses after"], '''
 )
+from course_lib.checkpoint import complete_steps
@@
-    resume_training(training, folder, group)
+    job.sampler.step = max(complete_steps(folder), default=0)
'''),
]

RIGHT = [
    Right("variant_counts", "a loop over the steps that are left", '''
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
    training = mesh_training(job.model, job.optimizers, {"data": job.sampler})
    resumed = resume_training(training, folder, group)
    begin = resumed.step if resumed else 0
    saver = AsyncSaver(folder, group, keep=keep)
    for step in range(begin + 1, steps + 1):
        make_step(job, watch)
        if step % interval == 0:
            save_training(training, saver, group, step=step)
    saver.wait()
'''),
    Right("variant_save_sharded", "saved at once and not in the background", '''
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from course_lib.checkpoint import resume_training, save_sharded
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
    while job.sampler.step < steps:
        make_step(job, watch)
        if job.sampler.step % interval == 0:
            snapshot, done = training.snapshot(group), job.sampler.step
            save_sharded(**snapshot, folder=folder, group=group, step=done, keep=keep)
'''),
    Right("variant_waits", "each save is waited for", '''
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
        if job.sampler.step % interval == 0:
            save_training(training, saver, group, step=job.sampler.step)
            saver.wait()
    saver.wait()
'''),
]
