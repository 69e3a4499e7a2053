"""variant: parameters, moments and options are copied by hand"""

import copy
import random
from typing import Any

import torch
from torch import nn


def tensors_of(model: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers."""
    return [*model.parameters(), *model.buffers()]


def capture(training: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that the next step depends on."""
    adam = training.optimizer
    moments = [copy.deepcopy(adam.state[p]) for p in training.model.parameters()]
    options = [{k: v for k, v in g.items() if k != "params"} for g in adam.param_groups]
    job = {
        "tensors": [t.detach().clone() for t in tensors_of(training.model)],
        "moments": moments,
        "options": options,
        "rest": [
            copy.deepcopy(part.state_dict())
            for part in (training.schedule, training.scaler, training.sampler)
        ],
        "step": training.step,
    }
    return job, {"torch": torch.get_rng_state(), "python": random.getstate()}


def restore(training: Any, job: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Makes a training go on where `capture` was called."""
    with torch.no_grad():
        for mine, saved in zip(tensors_of(training.model), job["tensors"], strict=True):
            mine.copy_(saved)
    adam = training.optimizer
    for parameter, moments in zip(training.model.parameters(), job["moments"], strict=True):
        adam.state[parameter] = copy.deepcopy(moments)
    for group, options in zip(adam.param_groups, job["options"], strict=True):
        group.update(options)
    parts = (training.schedule, training.scaler, training.sampler)
    for part, state in zip(parts, job["rest"], strict=True):
        part.load_state_dict(dict(state))
    training.step = job["step"]
    if own is not None:
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
