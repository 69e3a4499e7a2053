"""Drivers for the two linear layers that are cut over a group: built alone, and used once."""

from __future__ import annotations

from typing import Any

import torch

from grading.references.tensor_parallel import cut_layers
from grading.references.tensor_parallel.cut_layers import Layer, Parts


def drive_build(
    learner: Any, group: Any, name: str, layers: list[Layer], parts: Parts
) -> dict[str, Any]:
    """Builds each layer with the class of that name."""
    make, mine = getattr(learner, name), cut_layers.group_of(group, parts)
    return {"cases": [cut_layers.built(lambda full: make(full, mine), layer) for layer in layers]}


def drive_layers(
    learner: Any,
    group: Any,
    name: str,
    layers: list[Layer],
    xs: list[torch.Tensor],
    slopes: list[torch.Tensor],
    parts: Parts,
) -> dict[str, Any]:
    """Builds each layer, and makes one forward and backward with it, and one without gradients."""
    mine, events, found = cut_layers.group_of(group, parts), group.ledger.events, []
    for (weight, bias), x, slope in zip(layers, xs, slopes, strict=True):
        full, begin = cut_layers.full_layer(weight, bias), len(events)
        layer = getattr(learner, name)(full, mine)
        said = cut_layers.step(layer, layer, x, slope, events)
        with torch.no_grad():
            later = cut_layers.copied(layer(cut_layers.turned(x)))
        found.append({**said, "later": later, "marks": [begin, *said["marks"]]})
    return {"cases": found}
