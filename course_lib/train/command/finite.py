"""A loss that is no number ends the run: with the step, the rank, and the last good checkpoint.

Paper: Zhang et al., "OPT" (2022), section 2.5: runs that diverged were begun again from before.
Costs a comparison a step; ranks talk about it only once it has happened.
The production version skips the batch, and begins again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path

import torch

from course_lib.checkpoint.agree import gather_json
from course_lib.comm import Group
from course_lib.trace import Refusal
from course_lib.train.command.folder import last_checkpoint
from course_lib.train.mesh_model import MeshModel


class NotFinite(Refusal):
    """A training whose loss, or whose gradient, is no finite number."""


class LossWatch:
    """Remembers which micro-batches of this rank had a loss that is no number.

    Args:
        model: whose losses pass here from now on.
    """

    def __init__(self, model: MeshModel) -> None:
        self.bad: torch.Tensor | None = None
        self._loss = model.pipeline.loss
        model.pipeline.loss = self._listen

    def _listen(self, output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = self._loss(output, targets)
        bad = ~loss.detach().isfinite()
        self.bad = bad if self.bad is None else self.bad | bad
        return loss

    def take(self) -> bool:
        """Whether there was one since the last call."""
        bad, self.bad = self.bad, None
        return bad is not None and bool(bad)


def is_finite(row: Mapping[str, float]) -> bool:
    """Whether a step gave numbers, by its row; a step that a loss scaler left out need not."""
    return isfinite(row["loss"]) and (not row["made"] or isfinite(row["norm"]))


def not_finite(row: Mapping[str, float], watch: LossWatch, group: Group, folder: str) -> NotFinite:
    """The error for a step that gave none, the same on every rank; collective.

    Args:
        row: of the step.
        watch: of this rank.
        group: all ranks.
        folder: of the run, for its last checkpoint; "" if nothing is written.
    """
    losses = gather_json(watch.take(), group)
    bad = [rank for rank, is_bad in enumerate(losses) if is_bad]
    where = f"the loss of rank {bad[0]} is the first such" if bad else "in the gradient alone"
    saved = last_checkpoint(Path(folder)) if folder else 0
    good = f"the last good checkpoint is that of step {saved}" if saved else "nothing was saved"
    return NotFinite(
        f"step {row['step']} of a training",
        f"a loss of {row['loss']:g} and a gradient norm of {row['norm']:g}; {where}",
        f"no later step would have numbers either; {good}",
    )
