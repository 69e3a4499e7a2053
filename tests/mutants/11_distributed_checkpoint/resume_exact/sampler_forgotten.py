"""mutant: the sampler begins anew"""

import copy
import random
from typing import Any

import torch


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    job = {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "schedule": training.schedule.state_dict(),
        "scaler": training.scaler.state_dict(),
        "step": training.step,
    }
    own = {"torch": torch.get_rng_state(), "python": random.getstate()}
    return copy.deepcopy(job), own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    job = copy.deepcopy(job)
    training.model.load_state_dict(job["model"])
    training.optimizer.load_state_dict(job["optimizer"])
    training.schedule.load_state_dict(job["schedule"])
    training.scaler.load_state_dict(job["scaler"])
    training.step = job["step"]
    if own is not None:
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
