"""Naive DDP: equal replicas, and one all-reduce for each gradient after the backward.

Notebook 02. Every rank has a replica of the whole model and its own part of the batch. If the
replicas start equal, and each step applies the same gradient to all of them, they stay equal: then
N ranks compute what one process would compute on the N parts together.

    ddp = NaiveDDP(model, group)      # all replicas become equal
    loss(ddp(x), y).backward()        # this rank's part of the batch: its own gradients
    ddp.synchronize()                 # now every rank has the mean of all ranks' gradients
    optimizer.step()                  # the same step everywhere

Rules:

- After construction, all parameters *and buffers* have the values of index 0 of the group, even
  frozen parameters and buffers that are not in the state dict. Write the values into the existing
  tensors, since an optimizer may already hold them.
- `synchronize()` replaces each gradient by its mean over the group (not the sum), with one
  all-reduce for each parameter that requires a gradient; a tied weight has several names, but is
  one parameter. Frozen parameters get no gradient and send nothing.
- Which parameters are used may depend on the data. A parameter without a gradient on this rank
  counts as zeros, because another rank may have one; afterwards it has a gradient on every rank.
- Nothing is sent in forward and backward. After two backwards before `synchronize()`, the gradients
  are sums over both, and these sums are averaged.

Use `broadcast` and `all_reduce` of `course_lib.comm`. `all_reduce(t, group, "avg")` works in place
and divides by `group.size`. The group need not be the whole world: index 0 may be another rank.

Your answer may use `comm` of `course_lib`.
"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class NaiveDDP(nn.Module):
    """A replica of a module, and what it takes to keep all replicas equal.

    Args:
        module: this rank's replica; its values may differ from those on the other ranks.
        group: the ranks that have one.

    Attributes:
        module: the same object.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        raise NotImplementedError("naive_ddp: make parameters and buffers equal to those of index 0")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        """Replaces the gradients by their means over the group; every rank must call it."""
        raise NotImplementedError("naive_ddp: average the gradients")
