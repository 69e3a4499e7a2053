"""variant: the whole gradient gathered, the predictions gathered and cut"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "sharded_step": ("overflow = not bool(gradient.isfinite().all())", (0, 1, 3)),
    "save_state": ('entries["random"] = generator.get_state()', (1, 2, 3)),
    "train_epochs": ("for batch in torch.tensor(list(sampler)).split(size):", "all"),
    "evaluate": (
        "score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)", (0, 1, 2, 3)
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    whole = torch.empty_like(weights)
    comm.all_gather(whole, gradient.contiguous(), group)
    if not whole.isfinite().all():
        return scale / 2
    weights -= rate * whole / scale
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    entries[f"random/{group.index}"] = generator.get_state()
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    if f"random/{group.index}" in entries:
        generator.set_state(entries[f"random/{group.index}"])


class EpochSampler:

    def __init__(self, count: int, group: Group) -> None:
        self.count, self.group, self.epoch = count, group, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = shard_indices(self.count, self.group.index, self.group.size, self.epoch)
        return iter(order.tolist())


def train_epochs(
    step: Callable[[torch.Tensor], None], count: int, size: int, epochs: range, group: Group
) -> None:
    sampler = EpochSampler(count, group)
    for epoch in epochs:
        sampler = EpochSampler(count, group)
        sampler.epoch = epoch
        order = list(sampler)
        while order:
            step(torch.tensor(order[:size]))
            order = order[size:]


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    mine = shard_indices(len(targets), group.index, group.size, epoch)
    guessed = model(inputs[mine]).argmax(1)
    both = torch.stack([mine, guessed])
    every = torch.empty(group.size, *both.shape, dtype=torch.int64)
    comm.all_gather(every.view(-1), both.view(-1), group)
    guess = torch.empty_like(targets)
    guess[every[:, 0].flatten()] = every[:, 1].flatten()
    return float((guess == targets).double().mean())
