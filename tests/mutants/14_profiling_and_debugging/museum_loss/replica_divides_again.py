"""mutant: 1/N of it: the replica divides by the group's size once more"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

IGNORED = -100

Batch = tuple[torch.Tensor, torch.Tensor]

FAULT = {
    "finetune_update": ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())", "all"),
    "context_update": ("loss = losses / counted", "all"),
    "clip_stages": ("norm = square.sqrt()", (1, 2)),
    "replica_update": ("with nullcontext() if last else model.no_sync():", "none"),
}


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            (losses / counted).backward()


def context_update(
    model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, mesh: Mesh
) -> None:
    logits = model(tokens).flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    counted = (targets != IGNORED).sum()
    all_reduce(counted, mesh["cp"])
    loss = losses / counted * mesh["cp"].size
    loss.backward()
    for parameter in model.parameters():
        all_reduce(parameter.grad, mesh["dp", "cp"], "avg")


def clip_stages(stages: Sequence[nn.Module], max_norm: float, group: Group) -> torch.Tensor:
    parameters = [p for stage in stages for p in stage.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]
    square = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        square += gradient.square().sum()
    all_reduce(square, group)
    norm = square.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    total = 0.0
    model.zero_grad()
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
            loss.backward()
        total += loss.item()
    return total
