"""mutant: a mean of the micro-batches' means"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_reduce


def accumulate(
    model: nn.Module,
    micro: Iterator[tuple[torch.Tensor, torch.Tensor]],
    k: int,
    group: Group,
    ignore_index: int = -100,
) -> float | None:
    """Forward and backward of the next k micro-batches, as if they were one batch on one process.

    Args:
        model: tokens, int64 [B, T], to logits [B, T, V]; averages gradients, has `no_sync()`.
        micro: gives (tokens, targets), int64 [B, T] each; at most k are taken.
        k: micro-batches of an update.
        group: the data-parallel ranks; not always all ranks of the job.
        ignore_index: targets of this value do not count.

    Returns:
        This rank's part of the loss: the losses of its own counted tokens, divided by the number
        of all. (Added up over the ranks, that is the loss.) None if no micro-batch was left.
    """
    window = list(islice(micro, k))
    if not window:
        return None
    all_reduce(torch.zeros(1), group)
    part = 0.0
    for number, (tokens, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            losses = F.cross_entropy(
                model(tokens).flatten(0, 1),
                targets.flatten(),
                ignore_index=ignore_index,
            )
            loss = losses / len(window)
            loss.backward()
        part += loss.item()
    return part
