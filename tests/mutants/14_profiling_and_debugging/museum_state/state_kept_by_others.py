"""mutant: goes on with the generator of the new job"""

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
        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    overflow = (~gradient.isfinite()).any().to(torch.float32)
    comm.all_reduce(overflow, group, "max")
    if overflow:
        return scale / 2
    part = weights.chunk(group.size)[group.index].clone()
    part -= rate * gradient / scale
    comm.all_gather(weights, part, group)
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    entries["random"] = generator.get_state()
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    if group.index == 0:
        generator.set_state(entries["random"])


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
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(size):
            step(batch)


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    mine = torch.arange(group.index, len(targets), group.size)
    right = model(inputs[mine]).argmax(1) == targets[mine]
    score = torch.tensor([float(right.sum()), len(mine)], dtype=torch.float64)
    comm.all_reduce(score, group)
    return float(score[0] / score[1])
