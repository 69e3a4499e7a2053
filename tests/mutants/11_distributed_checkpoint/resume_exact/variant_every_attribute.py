"""variant: whatever has a state_dict is saved"""

import copy
import random
from typing import Any

import torch


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    states = {
        name: part.state_dict()
        for name, part in vars(training).items()
        if hasattr(part, "state_dict")
    }
    own = {"torch": torch.random.get_rng_state(), "python": random.getstate()}
    return {"parts": copy.deepcopy(states), "step": training.step}, own


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    for name, state in copy.deepcopy(job["parts"]).items():
        getattr(training, name).load_state_dict(state)
    training.step = job["step"]
    if own:
        random.setstate(own["python"])
        torch.set_rng_state(own["torch"])
