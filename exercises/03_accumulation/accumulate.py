"""accumulate: one update from k micro-batches on every rank, in which every token counts the same.

Notebook 03. The loss of an update is a mean over *tokens*:

    loss = sum of the losses of all counted tokens / number of all counted tokens

where "all" means all micro-batches of the update on all ranks. A token counts if its target is not
`ignore_index` (padding, or a prompt that is not to be learnt). Micro-batches have very different
numbers of counted tokens, and some have none. So a mean of the micro-batches' means is a different
loss: it gives a token of a short text more weight than one of a long text.

`accumulate` takes the next k micro-batches from an iterator (fewer if fewer are left), runs their
forwards and backwards, and adds the gradients of that loss to the parameters' gradients. It does
not zero gradients, nor scale what was in them before, and does not step.

Rules:
- `model` averages its gradients over the group at the end of a backward: it adds up the ranks'
  gradients and divides by the number of ranks. It does not do so if the *forward* of that backward
  was made inside `with model.no_sync():`. Synchronise once per update.
- Besides that, you may make one collective of at most 64 bytes per update, with `course_lib.comm`
  (none in the call that finds no micro-batch).
- Finish each micro-batch before the next: hold no graph of an earlier one.
- All ranks have equally many micro-batches. In each update, at least one token counts on some rank.

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
    """Runs forward and backward of the next k micro-batches, as if they were one batch.

    Args:
        model: takes tokens, int64 [B, T], and returns logits [B, T, V]; averages its gradients, and
            has `no_sync()`.
        micro: gives (tokens, targets), int64 [B, T] each; at most k are taken.
        k: number of micro-batches in an update.
        group: the data-parallel ranks; not always all ranks of the job.
        ignore_index: targets with this value do not count.

    Returns:
        This rank's part of the loss, a number without a graph: the sum of the losses of its own
        counted tokens, divided by the number of all counted tokens. (The sum over the ranks is the
        loss.) None if no micro-batch was left.
    """
    raise NotImplementedError("accumulate: write your answer here")
