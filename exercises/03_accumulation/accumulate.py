"""accumulate: one update from k micro-batches on every rank, every token counting the same.

Notebook 03. The loss of an update is a mean over *tokens*:

    loss = sum of the losses of all counted tokens / number of all counted tokens

where "all" means all micro-batches of the update on all ranks, and a token counts if its target is
not `ignore_index` (padding, or a prompt that is not to be learnt). Micro-batches have very
different numbers of counted tokens, some have none. So a mean of the micro-batches' means is
another loss: it lets a token of a short text weigh more than one of a long text.

`accumulate` takes the next k micro-batches from an iterator (fewer, if there are not so many left),
does their forwards and backwards, and leaves the gradients of that loss in the parameters. It
neither zeroes gradients nor steps.

Rules:
- `model` averages its gradients over the group at the end of a backward: it adds up the ranks'
  gradients and divides by their number. It does not if that backward's *forward* was made inside
  `with model.no_sync():`. Synchronise once an update.
- Besides, one collective of at most 64 bytes an update is allowed, with `course_lib.comm`.
- One micro-batch after another: no graph of an earlier one is held.
- All ranks have equally many micro-batches. In an update at least one token counts, on some rank.

Your answer may use `comm` of `course_lib`.
"""

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
    raise NotImplementedError("accumulate: write your answer here")
