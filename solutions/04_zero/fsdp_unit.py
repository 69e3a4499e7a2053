"""FSDP's unit: a block whose weights are whole only while it computes (ZeRO-3).

Notebook 04. A model is a stack of blocks. A unit holds one of them: each rank keeps 1/N of the
block's weights, its *shard*, and collects the rest only when the block computes.

    before forward     all-gather the shards: the weights are whole
    after forward      free the weights
    before backward    all-gather the shards again
    after backward     free the weights; reduce-scatter the gradients, so that each rank gets the
                       mean over all ranks of its own part

With S bytes of weights, a rank sends 3(N-1)/N·S bytes in the three collectives; DDP's all-reduce
sends 2(N-1)/N·S. In return, a rank keeps only S/N bytes of weights and of gradients, and besides
never holds more than two blocks: the weights and the gradients of the one that computes.

`__init__`, which cuts the weights, and `forward`, which calls the four moments, are given. Write
the other six methods.

Rules
- `full` is one flat tensor: all weights of the block in order, then zeros up to a multiple of N.
  `weights` are views of it. Autograd keeps such views until the backward, so the memory is freed
  only if the storage under all of them shrinks: `full.untyped_storage().resize_(0)`. To fill `full`
  again, resize its storage to `full.nbytes` bytes first.
- The optimizer gets only `shard`, and changes its values in each step.
- A backward *adds* the mean to `shard.grad`, as autograd does: there may be several backwards
  before a step. It leaves no `grad` on the weights.
- A weight that the block did not use has `grad` None, and counts as zeros; so does the padding.
- Make one all-gather or reduce-scatter for the whole unit, not one for each weight. You may choose
  the functions of `course_lib.comm`; its `reduce_scatter` takes `op="avg"`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_gather, reduce_scatter


class Moment(torch.autograd.Function):
    """Passes a tensor on unchanged, and calls `call` when the backward reaches it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shard: torch.Tensor, call: Callable[[], None]) -> Any:
        """Returns `x`."""
        ctx.call = call  # `shard` needs a gradient, so backward is called even if `x` needs none
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Makes the call, and returns the gradient as it is."""
        ctx.call()
        return grads[0], None, None


class FSDPUnit(nn.Module):
    """One block with sharded weights.

    Args:
        block: `block(x, *weights)` returns a tensor; `x` is a tensor of floats.
        weights: the same values on every rank, one dtype.
        group: the ranks.

    Attributes:
        shard: this rank's part of `full`, flat; the only parameter.
        full: all weights and the padding, flat; its storage is empty between uses.
        weights: the block's arguments; autograd leaves, and views of `full`.
    """

    def __init__(
        self, block: Callable[..., torch.Tensor], weights: Sequence[torch.Tensor], group: Group
    ) -> None:
        super().__init__()
        self.block, self.group = block, group
        self.shapes = [weight.shape for weight in weights]
        flat = torch.cat([weight.detach().flatten() for weight in weights])
        flat = nn.functional.pad(flat, (0, -len(flat) % group.size))
        self.shard = nn.Parameter(flat.chunk(group.size)[group.index].clone())
        self.full = flat
        # `.data`: filling `full` again must not look like a change of what autograd has saved.
        self.weights = [view.data.requires_grad_() for view in self.views(flat)]
        self.free()

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a tensor like `full`, in the shapes of the weights."""
        counts = [shape.numel() for shape in self.shapes]
        parts = flat[: sum(counts)].split(counts)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the block's output, and calls the four moments around it in both passes."""
        x = Moment.apply(x, self.shard, self.after_backward)
        self.before_forward()
        y = self.block(x, *self.weights)
        self.after_forward()
        return Moment.apply(y, self.shard, self.before_backward)

    def gather(self) -> None:
        """Makes the weights whole: gets memory for `full` and gathers all ranks' shards into it."""
        # BEGIN SOLUTION: gather the weights
        self.full.untyped_storage().resize_(self.full.nbytes)
        all_gather(self.full, self.shard.detach(), self.group)  # mutate: same
        # END SOLUTION

    def free(self) -> None:
        """Frees the memory of the weights."""
        # BEGIN SOLUTION: free the memory of the weights
        self.full.untyped_storage().resize_(0)
        # END SOLUTION

    def before_forward(self) -> None:
        """The block is about to compute."""
        # BEGIN SOLUTION: before forward
        self.gather()
        # END SOLUTION

    def after_forward(self) -> None:
        """The block has computed."""
        # BEGIN SOLUTION: after forward
        self.free()
        # END SOLUTION

    def before_backward(self) -> None:
        """The gradient of the block's output has been computed."""
        # BEGIN SOLUTION: before backward
        self.gather()
        # END SOLUTION

    def after_backward(self) -> None:
        """The `grad` of every weight that was used is now this rank's own gradient."""
        # BEGIN SOLUTION: after backward
        self.free()  # first: the flat gradient takes its place
        flat = torch.zeros_like(self.full)
        pairs = zip(self.weights, self.views(flat), strict=True)  # mutate: same
        for weight, view in pairs:
            if weight.grad is not None:
                view.copy_(weight.grad)
            weight.grad = None
        mean = torch.empty_like(self.shard)
        reduce_scatter(mean, flat, self.group, "avg")
        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
        # END SOLUTION
