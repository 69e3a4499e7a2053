"""mutant: half as many, the parameters not collected"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


def flatten(params: list[nn.Parameter], group: Group) -> torch.Tensor:
    """Makes parameters views of one flat tensor, padded for `group`, the same on all ranks."""
    count = sum(p.numel() for p in params)
    flat = params[0].new_zeros(-(-count // group.size) * group.size)
    parts = flat[:count].split([p.numel() for p in params])
    for param, part in zip(params, parts, strict=True):
        part.copy_(param.detach().reshape(-1))
        param.data = part.view(param.shape)
    broadcast(flat, 0, group)
    return flat


class Zero1:
    """Wraps an optimizer class.

    Args:
        params: parameters, or parameter groups (dicts with "params"), as for any optimizer.
        optimizer: a class, `torch.optim.AdamW` for example.
        group: the ranks.
        options: for the optimizer.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], group: Group, **options: Any
    ) -> None:
        self.optimizer, self.group, self.options = optimizer, group, options
        self.inner: Any = None  # the optimizer of this rank's shards
        self.flats: list[tuple[list[nn.Parameter], torch.Tensor]] = []  # one for each group
        params = list(params)
        for each in params if isinstance(params[0], dict) else [{"params": params}]:
            self.add_param_group(each)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One for each group that was given; "params" holds its shard."""
        return self.inner.param_groups

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for params, _ in self.flats:
            for param in params:
                param.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes care of more parameters."""
        params = [param for param in param_group["params"] if param.requires_grad]
        flat = flatten(params, self.group)
        self.flats.append((params, flat))
        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
        own = {**param_group, "params": [shard]}
        if self.inner is None:
            self.inner = self.optimizer([own], **self.options)
        else:
            self.inner.add_param_group(own)

    @torch.no_grad()
    def step(self) -> None:
        """Averages the gradients, updates this rank's shards, collects the parameters."""
        pairs = zip(self.flats, self.inner.param_groups, strict=True)  # mutate: same
        for (params, flat), own in pairs:
            rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            full = torch.zeros_like(flat)
            row = torch.cat([row.reshape(-1) for row in rows])
            full[: row.numel()] = row
            (shard,) = own["params"]
            shard.grad = ring_reduce_scatter(full, self.group, "avg")
        self.inner.step()
