"""ZeRO-1: each rank keeps the optimizer state of its own shard, and updates only that shard.

Notebook 04. AdamW keeps two numbers for each element of the parameters, and with plain data
parallelism every rank keeps all of them. But the update of one element does not need the state of
another. So rank i keeps the state of shard i. A step averages the gradients so that each rank gets
its shard of them (reduce-scatter), updates that shard, and collects the updated shards of all ranks
(all-gather). That sends as many bytes as DDP's all-reduce, which does both in one: 2(N-1)/N·S.

`flatten`, which makes a group's parameters views of one flat tensor, is given, and so is everything
around the two functions that you write:

- `add_param_group(param_group)`: the lines that are given make `flat`, which holds this group's
  parameters. Cut it into `group.size` equal parts: this rank's shard is part `group.index`. Make it
  one `nn.Parameter` that shares memory with `flat`. Give it to `self.inner`, an optimizer of the
  class `self.optimizer`, with all other entries of `param_group` (lr, weight_decay, ...). The first
  group creates `self.inner`, with `self.options`; each later one is added to it, in order.
- `step()`: for each group, average the full gradients over all ranks so that this rank gets its
  part, cut like `flat`, as the shard's `.grad`. Then call `self.inner.step()`, and then collect the
  updated parameters from all ranks. A parameter without a gradient on this rank counts as zeros.

Rules: gradients may have been accumulated by several backwards. `self.param_groups` are those of
`self.inner`; a learning-rate schedule writes to them. Use `course_lib.comm`, for example
`ring_reduce_scatter` and `ring_all_gather`, which work in place on a flat tensor. The optimizer
works element by element, as SGD and AdamW do. All parameters of a group have one dtype.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_gather, ring_reduce_scatter


def flatten(params: list[nn.Parameter], group: Group) -> torch.Tensor:
    """Makes parameters views of one flat tensor: rank 0's values, padded for `group`."""
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
        options: keyword arguments for the optimizer.
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
        """One for each param group, in order; "params" holds its shard."""
        return self.inner.param_groups

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self.inner.zero_grad()
        for params, _ in self.flats:
            for param in params:
                param.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters that the optimizer updates from now on."""
        params = [param for param in param_group["params"] if param.requires_grad]
        flat = flatten(params, self.group)
        self.flats.append((params, flat))
        # BEGIN SOLUTION
        shard = nn.Parameter(flat.view(self.group.size, -1)[self.group.index])
        own = {**param_group, "params": [shard]}
        if self.inner is None:
            self.inner = self.optimizer([own], **self.options)
        else:
            self.inner.add_param_group(own)
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Averages the gradients, updates this rank's shards and collects the parameters."""
        # BEGIN SOLUTION
        pairs = zip(self.flats, self.inner.param_groups, strict=True)  # mutate: same
        for (params, flat), own in pairs:
            rows = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            full = torch.zeros_like(flat)
            row = torch.cat([row.reshape(-1) for row in rows])
            full[: row.numel()] = row
            (shard,) = own["params"]
            shard.grad = ring_reduce_scatter(full, self.group, "avg")
        self.inner.step()
        for _, flat in self.flats:
            ring_all_gather(flat, self.group)
        # END SOLUTION
