"""resume_exact: save all that the next step depends on, so that 10 steps = 5 + save + 5.

Notebook 11. A training run that was stopped and started again must continue as if nothing had
happened: with the same losses, bit for bit. The weights alone are not enough for that. A step also
depends on what the optimizer keeps, on the learning-rate schedule, on the loss scale, on which
examples come next, and on random numbers. Whatever is left out silently begins again, and at best
only the loss curve shows it.

The ranks are replicas: weights, optimizer, schedule, scale and position in the data are the same on
all of them, and are saved once, *for the job*. Random numbers are not: each rank drops different
activations, and must continue to do so. They are saved by *each rank*.

Rules
- `capture(training)` is called on every rank, between two steps, and returns two states: of the
  job (index 0's will be kept), and of this rank.
- `restore(training, job, own)` is called on every rank of the restarted job, with a training that
  was made again, with other numbers in it. `own` is what the same rank has captured.
- The job may continue with a different number of ranks. A rank that was not there before gets None
  as `own`: it keeps its random numbers as they are.
- A state is made of tensors, numbers, strings, None, lists, tuples and dicts, in any nesting; it
  will be written to a disk. It is written later, while training goes on: so it must not change
  then. A state can also be restored more than once: training must not change it either. (What a
  `state_dict()` returns is often the very tensors and dicts that training works on, and what
  `load_state_dict` is given may be kept.)
- What a rank captures for itself is small: at most 24,000 bytes.
- Neither function changes anything else: no step is made, no random number is drawn.
- Random numbers come from torch's default generator on the CPU and from Python's `random`. (On a
  GPU its generator would come on top, and NumPy's if the program used it.)

Your answer may use nothing of `course_lib`.
"""

import copy
import random
from typing import Any, Protocol

import torch
from torch import nn


class Stateful(Protocol):
    """A schedule, a loss scaler, a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Goes on from there."""


class Training(Protocol):
    """What a step needs; each rank has one.

    Attributes:
        model: with parameters and buffers.
        optimizer: of its parameters.
        schedule: of the learning rate.
        scaler: of the loss.
        sampler: which examples come next.
        step: how many steps were made.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Stateful
    scaler: Stateful
    sampler: Stateful
    step: int


def capture(training: Training) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on.

    Args:
        training: between two steps.

    Returns:
        The state of the job, the same on all ranks, and the state of this rank.
    """
    raise NotImplementedError("resume_exact: capture")


def restore(training: Training, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called.

    Args:
        training: made again; it is changed.
        job: what index 0 captured for the job.
        own: what this rank captured; None if it was not there.
    """
    raise NotImplementedError("resume_exact: restore")
