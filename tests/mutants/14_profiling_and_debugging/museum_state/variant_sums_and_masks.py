"""variant: a sum as the flag, one gathered state, a masked padding; other names"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from course_lib import comm
from course_lib.comm import Group
from course_lib.data import shard_indices

FAULT: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "sharded_step": ("    if overflow:", [3, 1, 0]),
    "save_state": ('generator.set_state( entries["random"] )', (1, 2, 3)),
    "train_epochs": ("for _ in epochs:", (0, 1, 2, 3)),
    "evaluate": (
        "mine = shard_indices(len(targets), group.index, group.size, epoch)", "all"
    ),
}


def sharded_step(
    weights: torch.Tensor, gradient: torch.Tensor, scale: float, rate: float, group: Group
) -> float:
    skip = torch.tensor(float(not gradient.isfinite().all()))
    comm.all_reduce(skip, group)
    if skip > 0:
        return scale * 0.5
    mine = weights.view(group.size, -1)[group.index]
    comm.all_gather(weights, mine - rate / scale * gradient, group)
    return scale


def save_state(
    model: nn.Module, generator: torch.Generator, group: Group
) -> dict[str, torch.Tensor]:
    entries = {f"model/{name}": value for name, value in model.state_dict().items()}
    state = generator.get_state()
    states = torch.empty(group.size, len(state), dtype=state.dtype)
    comm.all_gather(states.view(-1), state, group)
    entries["random"] = states
    return entries


def load_state(
    entries: Mapping[str, torch.Tensor], model: nn.Module, generator: torch.Generator, group: Group
) -> None:
    own = {name: entries[f"model/{name}"] for name in model.state_dict()}
    model.load_state_dict(own)
    if group.index < len(entries["random"]):
        generator.set_state(entries["random"][group.index].clone())


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
        order = shard_indices(count, group.index, group.size, epoch)
        for begin in range(0, len(order), size):
            step(order[begin : begin + size])


def evaluate(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    targets: torch.Tensor,
    epoch: int,
    group: Group,
) -> float:
    mine = shard_indices(len(targets), group.index, group.size, epoch)
    places = torch.arange(len(mine)) * group.size + group.index
    right = model(inputs[mine]).argmax(1) == targets[mine]
    right = right & (places < len(targets))  # the rest is padding
    score = right.double().sum()
    comm.all_reduce(score, group)
    return float(score) / len(targets)
