"""clip_grad_norm: once per update, after the synchronisation, on unscaled gradients.

Notebook 03. One bad batch can give a gradient a hundred times longer than usual, and one such step
can undo hours of training. So the *whole* gradient, all parameters as one long vector, is made
shorter if its norm is above a limit. It keeps its direction. Write two functions:

1. `clip_grad_norm(parameters, max_norm, norm_type)`: computes the norm of all gradients together,
   multiplies each gradient, in place, by min(1, max_norm / (norm + 1e-6)), and returns the norm
   from before. Parameters without a gradient are left out; if no parameter has one, the norm is 0.
   `parameters` may be a generator, such as `model.parameters()`.
2. `update(...)`: makes one update from a window of micro-batches of equal size. The loss of the
   update is the mean over the window. As in half precision, each loss is multiplied by `scale`
   before its backward, so that small gradients do not become 0. Before the gradients are used, they
   are divided by `scale` again. Then they are clipped (2-norm), and the optimizer steps.

Rules for `update`:
- `model` averages its gradients over the group at the end of a backward, unless that backward's
  forward was made inside `with model.no_sync():`. Synchronise once per update; send nothing else.
- Clip the gradient of the whole update: of all micro-batches and all ranks.
- Change gradients in place (`gradient.mul_`, `div_`): they may be views of a bucket.
- Zero the gradients at the beginning.

Your answer may use `comm` of `course_lib`; of torch everything but
`torch.nn.utils.clip_grad_norm_`, `torch.nn.utils.clip_grads_with_norm_` and
`torch.nn.utils.get_total_norm`.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import nn


def clip_grad_norm(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Makes the gradients shorter, in place, if their norm is above `max_norm`.

    Args:
        parameters: some may have no gradient.
        max_norm: the largest norm that is allowed for all gradients together.
        norm_type: 2.0, another p of the p-norm, or infinity for the largest absolute value.

    Returns:
        The norm before clipping, a scalar tensor.
    """
    raise NotImplementedError("clip_grad_norm: write your answer here")


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window: Sequence[tuple[torch.Tensor, torch.Tensor]],
    max_norm: float,
    scale: float,
) -> torch.Tensor:
    """Makes one update: runs the window's micro-batches, unscales, clips and steps.

    Args:
        model: averages its gradients, and has `no_sync()`.
        optimizer: the optimizer of its parameters.
        loss_fn: takes a micro-batch's outputs and targets, and returns its mean loss.
        window: (inputs, targets) of each micro-batch, all of one size.
        max_norm: the largest norm that is allowed.
        scale: each loss is multiplied by it before its backward.

    Returns:
        The norm of the update's unscaled gradient before clipping; the same on every rank.
    """
    raise NotImplementedError("clip_grad_norm: write your answer here")
