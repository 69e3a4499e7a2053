"""mutant: ring_scores, the ranks send one after the other"""

from collections.abc import Sequence

import torch

from course_lib import comm
from course_lib.comm import Group


def keep_best(
    losses: torch.Tensor, weights: torch.Tensor, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    best = kept = losses.new_full((), float("inf"))
    for loss, weight in zip(losses, weights, strict=True):
        mean = loss.clone()
        comm.all_reduce(mean, group, "avg")
        if mean < best:
            best, kept = mean, weight.clone()
            comm.all_reduce(kept, group, "avg")
    return best, kept


def sync_gradients(gradients: dict[str, torch.Tensor], dp: Group, tp: Group) -> None:
    for name in sorted(gradients):
        if name.endswith("norm"):
            comm.all_reduce(gradients[name], tp)
        comm.all_reduce(gradients[name], dp, "avg")


def sync_tied(gradient: torch.Tensor | None, pp: Group, ends: Group) -> None:
    if gradient is not None:
        comm.all_reduce(gradient, ends)


def gather_predictions(mine: torch.Tensor, group: Group) -> torch.Tensor:
    counts = torch.empty(group.size, dtype=torch.int64)
    comm.all_gather(counts, torch.tensor([mine.shape[0]]), group)
    most = int(counts.max())
    padded = torch.nn.functional.pad(mine, (0, 0, 0, most - mine.shape[0]))
    everybody = mine.new_empty(group.size * most, mine.shape[1])
    comm.all_gather(everybody, padded, group)
    parts = everybody.view(group.size, most, mine.shape[1])
    cut = [part[:count] for part, count in zip(parts, counts, strict=True)]
    return torch.cat(cut)


def ring_scores(queries: torch.Tensor, keys: torch.Tensor, group: Group) -> torch.Tensor:
    scores = [torch.empty(0)] * group.size
    for step in range(group.size):
        scores[(group.index - step) % group.size] = keys @ queries.T
        if step < group.size - 1:
            incoming = torch.empty_like(keys)
            if group.index == 0:
                comm.send(keys, group.next, group)
            comm.recv(incoming, group.previous, group)
            if group.index != 0:
                comm.send(keys, group.next, group)
            keys = incoming
    return torch.cat(scores)


def gradient_of(weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    if not batch.isfinite().all():
        raise ValueError("a damaged batch")
    inputs, targets = batch[:, :-1], batch[:, -1]
    return inputs.T @ (inputs @ weight - targets) / len(batch)


def train(
    weight: torch.Tensor, batches: Sequence[torch.Tensor], rate: float, group: Group
) -> tuple[torch.Tensor, int]:
    left_out = 0
    for batch in batches:
        damaged = torch.zeros(1)
        try:
            gradient = gradient_of(weight, batch)
        except ValueError:
            damaged = torch.ones(1)
        comm.all_reduce(damaged, group)
        if damaged:
            left_out += 1
            continue
        comm.all_reduce(gradient, group, "avg")
        weight = weight - rate * gradient
    return weight, left_out
