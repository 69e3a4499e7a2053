"""elastic_restart: a job that may be killed at any moment, and is started again and again.

Notebook 11. With a thousand GPUs something breaks every few hours. The launcher of a job (torchrun,
a cluster's scheduler) can do only one thing about it: kill the rest of the job, and start the same
program again, perhaps on a different number of ranks. So the program begins by looking for a
checkpoint to continue from, and saves often enough that little work is lost.

Here the grader plays torchrun: it calls your `train` on all ranks, kills a rank (in the middle of a
step, or in the middle of a save), and calls it again in new processes, with the same folder.

Rules for `train(group, folder, job, steps, interval)`
- It makes steps until `job.step` is `steps`. If there is a complete checkpoint in the folder, it
  continues from the newest one; otherwise it begins at step 0, where a new `job` is.
- It saves after each step that makes `job.step` a multiple of `interval`, and at no other time: not
  at step 0, where nothing was done yet, nor again at the step that it has just loaded.
- A rank may be killed while it saves, or before. Then the others may have written their part
  already: such a checkpoint is not complete, and must never be loaded. Whatever it left in the
  folder must not prevent the same step from being saved again.
- `job.capture()` returns two states: one of the whole job, the same on all ranks, and one of this
  rank. `job.restore(whole, own)` continues from there; every rank calls it. If the job has more
  ranks now than when it was saved, a new one has no state of its own: its `own` is None.
- Write files as you like, for example with `torch.save`, and read them with `torch.load`. All ranks
  see the same folder. Renaming a file or a folder is atomic: the others see it before or after.
"""

from pathlib import Path
from typing import Any, Protocol

import torch

from course_lib.comm import Group, barrier


class Job(Protocol):
    """A training; each rank has one.

    Attributes:
        step: how many steps were made; 0 at first.
    """

    step: int

    def make_step(self) -> None:
        """One step; collective."""

    def capture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state of the job and the state of this rank: tensors, numbers, tuples, dicts."""

    def restore(self, whole: dict[str, Any], own: dict[str, Any] | None) -> None:
        """Goes on from where they were captured; sets `step`."""


def train(group: Group, folder: Path, job: Job, steps: int, interval: int) -> None:
    """Trains, from the newest complete checkpoint if there is one, and saves now and then.

    Args:
        group: all ranks.
        folder: of all checkpoints; it exists.
        job: new.
        steps: of the whole training, those of earlier processes counted.
        interval: steps between two saves.
    """
    # BEGIN SOLUTION: train
    saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    if saved:
        newest = folder / str(max(saved))
        size, whole = torch.load(newest / "whole.pt")
        own = torch.load(newest / f"{group.index}.pt") if group.index < size else None
        job.restore(whole, own)
    while job.step < steps:
        job.make_step()
        if job.step % interval == 0:
            unfinished = folder / f"{job.step}.unfinished"
            unfinished.mkdir(exist_ok=True)
            whole, own = job.capture()
            torch.save(own, unfinished / f"{group.index}.pt")
            if group.index == 0:
                torch.save((group.size, whole), unfinished / "whole.pt")
            barrier(group)  # all parts are there
            if group.index == 0:
                unfinished.rename(folder / str(job.step))
    # END SOLUTION
