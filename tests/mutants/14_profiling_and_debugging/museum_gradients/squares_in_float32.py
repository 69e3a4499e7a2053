"""mutant: the norm with tp 1"""

import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import gelu

from course_lib.comm import (
    Group,
    all_gather,
    all_gather_to_group,
    all_reduce,
    reduce_scatter,
    reduce_scatter_in_group,
)
from course_lib.comm.autograd import summed

FAULT = {
    "start_engine": ("parameter.register_hook(lambda grad: summed(grad, tp))", "all"),
    "finish_gradients": ('all_reduce(views["embedding"], ends)', (1, 2)),
    "average_gradients": ("bucket /= group.size", "all"),
    "clip_gradients": ("squares += parameter.grad.double().square().sum()", "all"),
}

CUT = ("up.weight", "up.bias", "down.weight")  # of a Block: each rank of tp has its own part


class Block(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x_TD: torch.Tensor, tp: Group) -> torch.Tensor:
        all_TD = all_gather_to_group(self.norm(x_TD), 0, tp)
        y_TD = reduce_scatter_in_group(self.down(gelu(self.up(all_TD))), 0, tp)
        return x_TD + y_TD + self.bias


def start_engine(block: Block, tp: Group) -> Block:
    engine = copy.deepcopy(block).double()
    for name, parameter in engine.named_parameters():
        if name not in CUT:
            parameter.register_hook(lambda grad: summed(grad, tp))
    engine.zero_grad()
    return engine.train()


def flatten(
    grads: Mapping[str, torch.Tensor], parts: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    sizes = [grad.numel() for grad in grads.values()]
    buffer = torch.zeros(-(-sum(sizes) // parts) * parts, dtype=torch.float64)
    pieces = buffer[: sum(sizes)].split(sizes)
    views = {
        name: piece.view(grad.shape)
        for (name, grad), piece in zip(grads.items(), pieces, strict=True)
    }
    for name, grad in grads.items():
        views[name].copy_(grad)
    return buffer, views


def finish_gradients(
    grads: Mapping[str, torch.Tensor], dp: Group, ends: Group | None
) -> torch.Tensor:
    buffer, views = flatten(grads, dp.size)
    if ends is not None:
        all_reduce(views["embedding"], ends)
    mean = torch.empty_like(buffer.chunk(dp.size)[dp.index])
    reduce_scatter(mean, buffer, dp, "avg")
    return mean


class MixtureLayer(nn.Module):
    def __init__(self, hidden: int, experts: int, ep: Group) -> None:
        super().__init__()
        own = experts // ep.size
        self.first = ep.index * own
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(own))

    def forward(self, x_TD: torch.Tensor, ep: Group) -> torch.Tensor:
        weight_T, chosen_T = self.router(x_TD).softmax(-1).max(-1)
        chosen = torch.empty(ep.size * len(chosen_T), dtype=torch.int64)
        all_gather(chosen, chosen_T, ep)
        x = all_gather_to_group(x_TD, 0, ep)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts, self.first):
            y = y + (chosen == number)[:, None] * expert(x)
        return x_TD + weight_T[:, None] * reduce_scatter_in_group(y, 0, ep)


def average_gradients(layer: MixtureLayer, dp: Group, replicas: Group) -> None:
    for experts, group in ((True, replicas), (False, dp)):
        grads = [
            parameter.grad
            for name, parameter in layer.named_parameters()
            if name.startswith("experts.") == experts
        ]
        bucket = torch.cat([grad.flatten() for grad in grads])
        all_reduce(bucket, group)
        bucket /= dp.size
        pieces = bucket.split([grad.numel() for grad in grads])
        for grad, piece in zip(grads, pieces, strict=True):
            grad.copy_(piece.view(grad.shape))


def clip_gradients(block: Block, tp: Group, max_norm: float) -> float:
    squares = torch.zeros((), dtype=torch.float64)
    found = [(name, each) for name, each in block.named_parameters() if each.grad is not None]
    for name, parameter in found:
        if name in CUT or tp.index == 0:
            squares += parameter.grad.square().sum()
    all_reduce(squares, tp)
    norm = float(squares.sqrt())
    for _, parameter in found:
        parameter.grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
