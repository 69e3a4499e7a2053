"""variant: mean times count; torch's norm and clip with the total; one no_sync block for all but the last; a list as ranks"""

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
    "clip_stages": ("norm = square.sqrt()", [2, 1]),
    "replica_update": ("with nullcontext() if last else model.no_sync():", "none"),
}


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    counted = torch.tensor(float(torch.cat([targets for _, targets in window]).ne(IGNORED).sum()))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            losses = loss * (targets != IGNORED).sum()
            (losses * group.size / counted).backward()


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
    norm = nn.utils.get_total_norm(gradients).double()
    square = norm**2
    all_reduce(square, group)
    nn.utils.clip_grads_with_norm_(parameters, max_norm, square.sqrt())
    return square.sqrt()


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    def work(batch: Batch) -> float:
        loss = F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()) / len(window)
        loss.backward()
        return loss.item()

    model.zero_grad()
    with model.no_sync():
        total = sum(work(batch) for batch in window[:-1])
    return total + work(window[-1])
