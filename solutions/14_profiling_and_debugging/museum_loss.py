"""museum_loss: four updates that ran and converged, but were not the intended updates.

Notebook 14. Each function below has one fault that was once in public code. Nothing crashed: losses
fell, and people used the results. An exhibit's docstring says what its function must do and what
its victims saw. The code is short and reads well; the fault is in it. For each exhibit:

1. Name it, in `FAULT`: `"exhibit": (line, ranks)`. `line` is the first line of the starter after
   which something is not what it should be, copied as it stands there (blanks do not count).
   `ranks` says which ranks hold a wrong *gradient* after the call, in the run that the docstring
   describes: `"all"`, `"none"`, or a tuple such as `(0, 3)`.
2. Repair the function.

Each exhibit is graded alone, on 2-4 ranks, against one process that has the data of all ranks, in
float64. Hidden runs have different sizes from those that the docstrings describe.

What the exhibits are given:
- A target of `IGNORED` (padding, a prompt) does not count; all other tokens do.
- `model` in `finetune_update` and `replica_update` is a data-parallel replica, used like torch's
  DistributedDataParallel (ours is `course_lib/parallel/data/ddp.py`): at the end of a backward it
  averages the gradients over its group, that is, adds them up and divides by the group's size.
  Micro-batches under `with model.no_sync():` only add to this rank's gradients.
- You may use torch, and `all_reduce` and the like of `course_lib.comm`. `all_reduce(t, group)` sums
  over the group, in place; with a third argument `"avg"` or `"max"`, it averages or takes the
  maximum.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce

IGNORED = -100  # also what F.cross_entropy leaves out, unless told otherwise

Batch = tuple[torch.Tensor, torch.Tensor]  # tokens and targets, int64 [B, T] each

# BEGIN SOLUTION
#: FAULT = {  # "exhibit": ("the line", ranks)
#:     "finetune_update": ("", ""),
#:     "context_update": ("", ""),
#:     "clip_stages": ("", ""),
#:     "replica_update": ("", ""),
#: }
FAULT = {
    "finetune_update": ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())", "all"),
    "context_update": ("loss = losses / counted", "all"),
    "clip_stages": ("norm = square.sqrt()", (1, 2)),
    "replica_update": ("with nullcontext() if last else model.no_sync():", "none"),
}
# END SOLUTION


def finetune_update(model: nn.Module, window: Sequence[Batch], group: Group) -> None:
    """Exhibit 1: forward and backward of one update, a window of micro-batches on each rank.

    Afterwards every rank holds the gradient of the mean loss over all counted tokens of the update:
    of all micro-batches on all ranks. Some texts are long, some short, and in some micro-batches no
    token counts (in the update, at least one does).

    Seen in: huggingface/transformers #24725, repaired in part by #34191, the rest is #34242 (two
    accumulated micro-batches are not one batch of both). Many small micro-batches gave a worse
    model than few large ones. One answer was that sums in 16 bits differ (huggingface/trl #2175);
    in float64 it is the same.

    The told run: 2 ranks, 2 micro-batches each; 10 and 100 tokens count on rank 0, 55 and 55 on
    rank 1. Both ranks end with the same gradient. Its distance from the gradient of the same four
    micro-batches as one large batch is 62 % of that gradient's norm. With 55 tokens in each of the
    four it is 0.

    Args:
        model: tokens [B, T] to logits [B, T, V]; a replica, its gradients are zero.
        window: this rank's micro-batches, as many on each rank.
        group: the ranks.
    """
    # BEGIN SOLUTION
    #: for number, (tokens, targets) in enumerate(window, 1):
    #:     last = number == len(window)
    #:     with nullcontext() if last else model.no_sync():
    #:         logits = model(tokens)
    #:         loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    #:         (loss / len(window)).backward()
    counted = torch.tensor(sum(int((targets != IGNORED).sum()) for _, targets in window))
    all_reduce(counted, group)
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            (losses * group.size / counted).backward()
    # END SOLUTION


def context_update(
    model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, mesh: Mesh
) -> None:
    """Exhibit 2: forward and backward with context parallelism, on a mesh of dp × cp ranks.

    A sequence lies in pieces on the ranks of a line along `cp`; each line is one data-parallel
    replica and has sequences of its own. The loss of a replica is the mean over the counted tokens
    of its sequences, that of the update is the mean over the replicas. Afterwards every rank holds
    its gradient. In each replica at least one token counts, but not in each piece.

    Seen in: NVIDIA/Megatron-LM #7452, finding 9, and #7513 (masked tokens and context parallelism).
    Without masks it was right on any mesh. With masks the gradient depended on how many ranks a
    sequence was cut for.

    The told run: dp 2 × cp 2, ranks 0 and 1 are a replica, 2 and 3 the other; one token counts in
    each replica, on ranks 0 and 3. All four ranks end with the same gradient, exactly half of what
    it is with cp 1. With cp 4 it is a quarter.

    Args:
        model: tokens [B, T] to logits [B, T, V], for this rank's piece (what attention needs of
            other pieces it fetches itself); its gradients are not synchronised by anybody else.
        tokens: this rank's piece, [B, T].
        targets: of this piece.
        mesh: has the axes `dp` and `cp`: `mesh["cp"]` is this rank's group along `cp`.
    """
    # BEGIN SOLUTION
    #: logits = model(tokens).flatten(0, 1)
    #: losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    #: counted = (targets != IGNORED).sum()
    #: counted = counted.clamp(min=1)  # a piece without a counted token: 0/1, not 0/0
    #: loss = losses / counted
    #: loss.backward()
    #: for parameter in model.parameters():
    #:     all_reduce(parameter.grad, mesh["dp", "cp"], "avg")
    logits = model(tokens).flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="sum")  # mutate: same
    counted = (targets != IGNORED).sum()
    all_reduce(counted, mesh["cp"])  # mutate: same
    loss = losses / counted * mesh["cp"].size  # the pieces of a mean add up, they are not averaged
    loss.backward()
    for parameter in model.parameters():
        all_reduce(parameter.grad, mesh["dp", "cp"], "avg")
    # END SOLUTION


def clip_stages(stages: Sequence[nn.Module], max_norm: float, group: Group) -> torch.Tensor:
    """Exhibit 3: clips the gradient of a model that lies in stages on the ranks of a pipeline.

    All gradients of the model together, seen as one long vector, have a 2-norm. If it is above
    `max_norm`, each gradient is multiplied, in place, by max_norm / (norm + 1e-6). Frozen
    parameters have no gradient; a rank may have frozen ones only. Ranks send no gradients here: at
    most 64 bytes a call.

    Seen in: pytorch/torchtitan #596, repaired by #649 (the norm of a model in a pipeline). The same
    model with the same data trained differently with a pipeline than without, once gradients were
    long; the log's norm differed from rank to rank.

    The told run: 3 ranks, max_norm 1. Rank 0 has the embedding and the first layers, all frozen.
    Gradients on rank 1 have the norm 0.8, on rank 2 it is 0.9; after the call they have the same.
    The ranks return 0, 0.8 and 0.9. Without a pipeline the norm is 1.204.

    Args:
        stages: this rank's part of the model, one stage or several.
        max_norm: the norm that is allowed.
        group: the ranks of the pipeline.

    Returns:
        The norm before, a float64 scalar; the same on every rank.
    """
    # BEGIN SOLUTION
    #: parameters = [p for stage in stages for p in stage.parameters()]
    #: gradients = [p.grad for p in parameters if p.grad is not None]
    #: square = torch.zeros((), dtype=torch.float64)
    #: for gradient in gradients:
    #:     square += gradient.square().sum()
    #: norm = square.sqrt()
    #: factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    #: for gradient in gradients:
    #:     gradient.mul_(factor)
    #: return norm
    parameters = [p for stage in stages for p in stage.parameters()]
    gradients = [p.grad for p in parameters if p.grad is not None]  # mutate: same
    square = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        square += gradient.square().sum()
    all_reduce(square, group)
    norm = square.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm
    # END SOLUTION


def replica_update(model: nn.Module, window: Sequence[Batch]) -> float:
    """Exhibit 4: forward and backward of one update, without sending a byte more than necessary.

    All tokens count, and all micro-batches have the same size. The loss of an update is the mean
    over its micro-batches on all ranks. Afterwards every rank holds its gradient, and gradients
    have been synchronised once, not more. Windows have different lengths, one at least.

    Seen in: speechbrain/speechbrain #1449, found in #1802 (many GPUs slower than one);
    huggingface/accelerate #1726 and pytorch/pytorch #89244 tell of others. Training was right and
    slow, the slower the longer the window.

    The told run: 4 ranks, windows of 8 micro-batches. All ranks end with the gradient of one
    process, to the last digit. Each rank sent 12 times the gradients' bytes: eight times the
    2(N-1)/N of one all-reduce.

    Args:
        model: tokens [B, T] to logits [B, T, V]; a replica, whatever is in its gradients is old.
        window: this rank's micro-batches.

    Returns:
        The mean loss of this rank's window.
    """
    # BEGIN SOLUTION
    #: total = 0.0
    #: model.zero_grad()
    #: for number, (tokens, targets) in enumerate(window, 1):
    #:     last = number == len(window)
    #:     logits = model(tokens)
    #:     loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
    #:     with nullcontext() if last else model.no_sync():
    #:         loss.backward()
    #:     total += loss.item()
    #: return total
    total = 0.0  # mutate: same
    model.zero_grad()
    for number, (tokens, targets) in enumerate(window, 1):
        last = number == len(window)
        with nullcontext() if last else model.no_sync():
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(window)
            loss.backward()
        total += loss.item()
    return total
    # END SOLUTION
